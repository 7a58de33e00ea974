"""A grid's rows are predicted points, its file gives them back, and axes that make no sense are refused."""

from dataclasses import replace

import pytest

from dlscale.analysis.predict.grid import (
    MOST_POINTS,
    NUM_REPLICATES,
    Axes,
    check_grid,
    grid_rows,
    read_axes,
    read_grid,
)
from dlscale.analysis.predict.noise import Noise
from dlscale.analysis.predict.prediction import predict_point
from dlscale.base.errors import UsageError
from dlscale.base.strings import to_csv
from tests.analysis.made_scenarios import NETWORK, scenario

OWN = scenario("ring", noise=Noise(steps=(0.98, 1.0, 1.04)), batch=8)


def test_a_row_is_the_predicted_point_with_that_network_noise_and_batch():
    axes = read_axes("link_rate=4,latency=0.5,jitter=0,batch=32")
    rows = list(grid_rows(axes, [OWN], [1, 16]))
    assert len(rows) == axes.num_points([OWN], [1, 16]) == 32
    found = next(
        row
        for row in rows
        if (row["link_rate_factor"], row["latency_factor"], row["jitter_factor"]) == (4, 0.5, 0)
        and (row["batch"], row["num_nodes"]) == (32, 16)
    )
    network = replace(NETWORK, node_bytes_per_second=4e9, latency_seconds=5e-6)
    alone = predict_point(
        replace(
            OWN, network=network, noise=Noise(steps=(1.0, 1.0, 1.0)), batch=32, num_replicates=NUM_REPLICATES
        ),
        16,
    )
    assert found["efficiency"] == alone.efficiency.center
    assert found["samples_per_second_low"] == alone.samples_per_second.low
    assert found["exposed_communication_loss"] == alone.parts["exposed communication"]
    assert (found["link_bytes_per_second"], found["latency_seconds"]) == (4e9, 5e-6)
    assert found["stragglers_loss"] == pytest.approx(0, abs=1e-12)
    assert {row["evidence"] for row in rows} == {"simulated"}


def test_every_axis_has_what_the_prediction_has():
    axes = read_axes("link_rate=2,batch=32")
    assert axes.link_rate == (1, 2)
    assert axes.batches(OWN) == (8, 32)
    assert axes.latency == Axes().latency
    strong = replace(OWN, scaling_mode="strong", batch=64)
    assert min(Axes().batches(strong)) == 64  # which as many ranks divide as divide the prediction's


@pytest.mark.parametrize(
    "text",
    [
        "rate=1",
        "link_rate",
        "link_rate=0",
        "link_rate=-1",
        "latency=nan",
        "jitter=inf",
        "batch=1.5",
        "batch=0",
    ],
)
def test_axes_that_make_no_sense_are_refused(text):
    with pytest.raises(ValueError, match=r"axis|numbers"):
        read_axes(text)


def test_too_many_points_are_refused_before_the_first():
    many = Axes(link_rate=tuple(range(1, 1 + MOST_POINTS)))
    with pytest.raises(UsageError, match="points, more than 50,000"):
        check_grid(many, [OWN], [1])


def test_the_file_gives_the_rows_back(tmp_path):
    rows = list(grid_rows(read_axes("link_rate=1,latency=1,jitter=1,batch=8"), [OWN], [1, 4]))
    path = tmp_path / "grid.csv"
    path.write_text(to_csv(rows))
    assert read_grid(path) == rows


@pytest.mark.parametrize("text", ["", "a,b\n1\n", "efficiency\nnan\n", "efficiency\nmuch\n", "\x00\xff"])
def test_a_damaged_file_is_one_line(text, tmp_path):
    path = tmp_path / "grid.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no grid of predictions"):
        read_grid(path)
