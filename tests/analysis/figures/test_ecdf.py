"""The distribution of steps: shares of windows, the same medians as the table's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.findings.step_distribution import MAX_POINTS, distribution_figure, points
from dlscale.analysis.form import SCREEN
from dlscale.analysis.measured import measure
from tests.analysis.reading import row_of
from tests.made_records import make_record, make_study


def figure_of(records):
    table = measure(records)
    return distribution_figure(table, table.families[0], SCREEN)


def test_a_curve_is_the_share_of_windows_that_took_no_longer():
    records = [
        make_record(num_ranks=2, samples_per_second=160, window_factors=factors, block=block)
        for block, factors in enumerate([(1.0, 1.2), (1.1, 1.4)])
    ]
    (plot,) = figure_of(records).panels
    curve, _ = plot.series
    # 16 samples per step at 160 samples/s: 100 ms
    assert [point.x for point in curve.points] == pytest.approx([100, 100, 110, 120, 140])
    assert [point.y for point in curve.points] == [0, 0.25, 0.5, 0.75, 1]
    assert (plot.x.title, curve.stairs) == ("time per step [ms]", True)


def test_only_the_most_ranks_of_trainings_that_count_are_drawn():
    records = [
        make_record(num_ranks=1, block=0),
        make_record(backend="ring", num_ranks=2, block=0, attempt=1, failure="died"),
        make_record(backend="ring", num_ranks=2, block=0, attempt=2, samples_per_second=80),
        make_record(backend="mpi", num_ranks=1, block=0),
        make_record(num_ranks=2, control="loader", block=0),
    ]
    figure = figure_of(records)
    assert {row["backend"] for row in figure.rows} == {"ring"}
    assert {row["seconds_per_step"] for row in figure.rows} == {0.2}
    assert "Not on as many ranks: mpi, none" in figure.small_print[0]


def test_the_median_is_that_of_the_table():
    records = make_study()
    medians = [series for series in figure_of(records).panels[0].series if not series.stairs]
    assert len(medians) == 4
    for series in medians:
        row = row_of(measure(records), backend=series.look, num_ranks=2)
        wanted, (point,) = row.throughput.rate(row.cell.global_batch).times(1000), series.points
        assert (point.x, point.left, point.right) == pytest.approx((wanted.center, wanted.low, wanted.high))
        assert point.y < 0  # below the curves


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


def test_slow_windows_make_the_axis_logarithmic():
    records = [
        make_record(num_ranks=2, window_factors=(1.0,) * 9 + (8.0,), block=block) for block in range(3)
    ]
    assert figure_of(records).panels[0].x.kind == "log"


def test_nothing_of_no_records():
    assert figure_of([make_record(failure="died")]) is None


def test_rows_have_the_same_columns_whatever_the_algorithm():
    """A cell of synchronous SGD is written without one, and a CSV file has columns of its first row alone."""
    records = [make_record(backend="ring", num_ranks=2)]
    records += [
        make_record(backend="ring", num_ranks=2, algorithm="easgd", algorithm_options={"interval": 4})
    ]
    rows = figure_of(records).rows
    assert {(row["algorithm"], row["algorithm_options"]) for row in rows} == {
        ("sync", ""),
        ("easgd", "interval=4"),
    }
    assert len({frozenset(row) for row in rows}) == 1
