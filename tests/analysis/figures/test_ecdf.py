"""The distribution of steps: shares of windows, the same medians as the table's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.step_distribution import MAX_POINTS, distribution_figure, points
from dlscale.analysis.form import SCREEN
from dlscale.analysis.measured import measure
from dlscale.analysis.metrics import step_seconds


def figure_of(records):
    table = measure(records)
    family = table.families[0]
    declared = distribution_figure(table, family, SCREEN)
    if declared is None:
        return None
    with drawing():
        figure = draw(declared)
        figure.draw_without_rendering()
    return figure, declared.rows


def curve(axes, name):
    line = next(line for line in axes.lines if line.get_label() == name)
    return np.array(line.get_xdata()), np.array(line.get_ydata())


def test_a_curve_is_the_share_of_windows_that_took_no_longer(make_record):
    records = [
        make_record(num_ranks=2, samples_per_second=160, window_factors=factors, block=block)
        for block, factors in enumerate([(1.0, 1.2), (1.1, 1.4)])
    ]
    figure, _ = figure_of(records)
    x, y = curve(figure.axes[0], "none")
    # 16 samples per step at 160 samples/s: 100 ms
    assert list(x) == pytest.approx([100, 100, 110, 120, 140])
    assert list(y) == [0, 0.25, 0.5, 0.75, 1]


def test_only_the_most_ranks_of_trainings_that_count_are_drawn(make_record):
    records = [
        make_record(num_ranks=1, block=0),
        make_record(backend="ring", num_ranks=2, block=0, attempt=1, failure="died"),
        make_record(backend="ring", num_ranks=2, block=0, attempt=2, samples_per_second=80),
        make_record(backend="mpi", num_ranks=1, block=0),
        make_record(num_ranks=2, control="loader", block=0),
    ]
    figure, rows = figure_of(records)
    assert {row["backend"] for row in rows} == {"ring"}
    assert {row["seconds_per_step"] for row in rows} == {0.2}
    assert "Not on as many ranks: mpi, none" in " ".join(figure.texts[-1].get_text().split())


def test_the_median_is_that_of_the_table(make_study):
    records = make_study()
    table = measure(records)
    for launches in table.launches:
        row = next(row for row in scaling.FINDING.of(table) if row.cell == launches.cell)
        wanted, typical = row.throughput.rate(row.cell.global_batch), step_seconds(launches)
        assert (typical.center, typical.low, typical.high) == pytest.approx(
            (wanted.center, wanted.low, wanted.high)
        )
    axes = figure_of(records)[0].axes[0]
    marks = [one for one in axes.containers if one.get_label() == "median"]
    assert len(marks) == 4
    assert all(mark.lines[0].get_ydata()[0] < 0 for mark in marks)  # below the curves
    ring = next(
        row for row in scaling.FINDING.of(table) if (row.cell.backend, row.cell.num_ranks) == ("ring", 2)
    )
    # One of them, in the order of the table: none, gloo, mpi, ring.
    assert marks[-1].lines[0].get_xdata()[0] == pytest.approx(1000 * 16 / ring.throughput.center)


def test_labels_have_units_and_shares_are_percent(make_study):
    axes = figure_of(make_study())[0].axes[0]
    assert axes.get_xlabel() == "time per step [ms]"
    assert axes.get_ylabel() == "windows that took no longer [%]"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "25", "50", "75", "100"]


@given(count=st.integers(1, 5 * MAX_POINTS), seed=st.integers(0, 99))
def test_drawn_points_are_true_ones_and_few(count, seed):
    values = np.random.default_rng(seed).lognormal(size=count).round(2)  # some of them equal
    ordered = np.sort(values)
    seconds, shares = points(ordered)
    assert len(seconds) == min(len(values), MAX_POINTS)
    assert (seconds[0], seconds[-1], shares[-1]) == (ordered[0], ordered[-1], 1.0)
    assert np.all(np.diff(shares) > 0)
    # Each point lies on the whole curve: as large a share of all windows took at most as long.
    assert np.all(ordered[np.round(shares * len(values)).astype(int) - 1] == seconds)


def test_slow_windows_make_the_axis_logarithmic(make_record):
    records = [
        make_record(num_ranks=2, window_factors=(1.0,) * 9 + (8.0,), block=block) for block in range(3)
    ]
    assert figure_of(records)[0].axes[0].get_xscale() == "log"


def test_nothing_of_no_records(make_record):
    assert figure_of([make_record(failure="died")]) is None


def test_rows_have_the_same_columns_whatever_the_algorithm(make_record):
    """A cell of synchronous SGD is written without one, and a CSV file has columns of its first row alone."""
    records = [make_record(backend="ring", num_ranks=2)]
    records += [
        make_record(backend="ring", num_ranks=2, algorithm="easgd", algorithm_options={"interval": 4})
    ]
    _, rows = figure_of(records)
    assert {(row["algorithm"], row["algorithm_options"]) for row in rows} == {
        ("sync", ""),
        ("easgd", "interval=4"),
    }
    assert len({frozenset(row) for row in rows}) == 1


@pytest.mark.parametrize("num_backends", [1, 4, 8])
def test_nothing_is_cut_off_at_the_edges(make_study, num_backends):
    backends = ("none", "ring", "tf_collective", "horovod", "grpc_ps", "mpi", "gloo", "nccl")[:num_backends]
    figure, _ = figure_of(make_study(efficiency=dict.fromkeys(backends, (1.0, 0.9)), num_blocks=3))
    boxes = [one.get_window_extent() for one in (*figure.texts, *figure.legends, *figure.axes)]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(box.y0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)
    panel = figure.axes[0].get_tightbbox()
    assert panel.y1 <= figure.legends[0].get_window_extent().y0
