"""A grid's rows are predicted points, its file gives them back, and axes that make no sense are refused."""

from dataclasses import replace

import pytest

from dlscale.analysis.predict.backend_rules import rule_of
from dlscale.analysis.predict.grid import (
    MOST_POINTS,
    NUM_REPLICATES,
    Axes,
    check_grid,
    grid_rows,
    read_axes,
    read_grid,
    to_csv,
)
from dlscale.analysis.predict.network import Network
from dlscale.analysis.predict.noise import Noise
from dlscale.analysis.predict.prediction import predict_point
from dlscale.analysis.predict.profile import Gradient, Profile
from dlscale.analysis.predict.scenario import Scenario
from dlscale.base.errors import UsageError

NETWORK = Network(
    name="switch",
    num_nodes=64,
    node_bytes_per_second=1e9,
    latency_seconds=1e-5,
    node_memory_bytes_per_second=1e10,
    reduce_seconds_per_byte=0.0,
)
PROFILE = Profile(
    workload="hep_cnn",
    preset="paper",
    framework="torch",
    local_batch=8,
    forward_seconds=0.1,
    backward_seconds=0.3,
    update_seconds=0.02,
    gradients=(Gradient(name="all", num_bytes=100_000_000, ready_seconds=0.3),),
    step_seconds=(0.31, 0.32, 0.33, 0.35),
    evidence="measured",
    source="a test",
)


@pytest.fixture
def scenario() -> Scenario:
    return Scenario(
        network=NETWORK,
        profile=PROFILE,
        noise=Noise(steps=(0.98, 1.0, 1.04)),
        rule=rule_of("ring", {}, framework="torch", num_servers=1, spare_core=True),
        scaling_mode="weak",
        batch=8,
    )


def test_a_row_is_the_predicted_point_with_that_network_noise_and_batch(scenario):
    axes = read_axes("link_rate=4,latency=0.5,jitter=0,batch=32")
    rows = list(grid_rows(axes, [scenario], [1, 16]))
    assert len(rows) == axes.num_points([scenario], [1, 16]) == 32
    found = next(
        row
        for row in rows
        if (row["link_rate_factor"], row["latency_factor"], row["jitter_factor"]) == (4, 0.5, 0)
        and (row["batch"], row["num_nodes"]) == (32, 16)
    )
    network = replace(NETWORK, node_bytes_per_second=4e9, latency_seconds=5e-6)
    alone = predict_point(
        replace(
            scenario,
            network=network,
            noise=Noise(steps=(1.0, 1.0, 1.0)),
            batch=32,
            num_replicates=NUM_REPLICATES,
        ),
        16,
    )
    assert found["efficiency"] == alone.efficiency.center
    assert found["samples_per_second_low"] == alone.samples_per_second.low
    assert found["exposed_communication_loss"] == alone.parts["exposed communication"]
    assert (found["link_bytes_per_second"], found["latency_seconds"]) == (4e9, 5e-6)
    assert found["stragglers_loss"] == pytest.approx(0, abs=1e-12)
    assert {row["evidence"] for row in rows} == {"simulated"}


def test_every_axis_has_what_the_prediction_has(scenario):
    axes = read_axes("link_rate=2,batch=32")
    assert axes.link_rate == (1, 2)
    assert axes.batches(scenario) == (8, 32)
    assert axes.latency == Axes().latency
    strong = replace(scenario, scaling_mode="strong", batch=64)
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


def test_too_many_points_are_refused_before_the_first(scenario):
    many = Axes(link_rate=tuple(range(1, 1 + MOST_POINTS)))
    with pytest.raises(UsageError, match="points, more than 50,000"):
        check_grid(many, [scenario], [1])


def test_the_file_gives_the_rows_back(scenario, tmp_path):
    rows = list(grid_rows(read_axes("link_rate=1,latency=1,jitter=1,batch=8"), [scenario], [1, 4]))
    path = tmp_path / "grid.csv"
    path.write_text(to_csv(rows))
    assert read_grid(path) == rows


@pytest.mark.parametrize("text", ["", "a,b\n1\n", "efficiency\nnan\n", "efficiency\nmuch\n", "\x00\xff"])
def test_a_damaged_file_is_one_line(text, tmp_path):
    path = tmp_path / "grid.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no grid of predictions"):
        read_grid(path)
