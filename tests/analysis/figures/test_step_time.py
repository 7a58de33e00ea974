"""Time per step and speed-up over ranks: the numbers of the declared figure."""

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.step_time import seconds_per_step, speed_up, step_time_figure
from dlscale.analysis.measured import measure
from tests.analysis.reading import row_of
from tests.made_records import make_record, make_study


def strong(kept):
    """Backends whose ranks keep a known share of 100 samples/s, the machine drifting from block to block."""
    return measure(make_study(efficiency=kept, global_batch=32, noise=0.0))


def figure_of(table):
    (family,) = table.families
    return step_time_figure(family, rows_of(scaling.FINDING.of(table), family), table.provenance)


def points(plot):
    """Backend -> {ranks: value}."""
    return {series.name: {round(point.x): point.y for point in series.points} for series in plot.series}


def ring_on_2_ranks(table):
    return row_of(table, backend="ring", num_ranks=2)


def test_a_perfectly_scaling_backend_lies_on_the_ideal_line_in_both_modes():
    (plot,) = figure_of(
        measure(make_study(efficiency={"none": (1.0, 1.0), "ring": (1.0, 0.8)}, noise=0))
    ).panels
    shown = points(plot)
    assert (plot.y.title, plot.y.low) == ("time per step [ms]", 0)
    assert [guide.y for guide in plot.guides] == [shown["none"][1]]
    assert shown["none"][2] == pytest.approx(shown["none"][1])
    assert shown["ring"][2] == pytest.approx(shown["ring"][1] / 0.8)

    times, speeds = figure_of(strong({"none": {1: 1, 2: 1, 4: 1}, "ring": {1: 1, 2: 0.9, 4: 0.5}})).panels
    shown = points(times)
    assert shown["none"][4] == pytest.approx(shown["none"][1] / 4)
    assert [x * y for x, y in times.guides[0].points] == pytest.approx([shown["none"][1]] * 2)
    assert points(speeds) == {
        "none": pytest.approx({1: 1, 2: 2, 4: 4}),
        "ring": pytest.approx({1: 1, 2: 1.8, 4: 2.0}),
    }
    assert [label for _, label in speeds.y.ticks] == ["1", "2", "4"]
    assert speeds.y.title == "speed-up T(p) / T(1)"


def test_long_steps_are_in_seconds():
    (plot,) = figure_of(measure(make_study(local_batch=200))).panels
    assert plot.y.title == "time per step [s]"


def test_bars_are_the_intervals_of_the_table():
    table = measure(make_study())
    row, figure = ring_on_2_ranks(table), figure_of(table)
    wanted = seconds_per_step(row)
    assert wanted.low == pytest.approx(row.cell.global_batch / row.throughput.high)
    assert wanted.high == pytest.approx(row.cell.global_batch / row.throughput.low)
    (ring,) = (series for series in figure.panels[0].series if series.name == "ring")
    ends = ring.points[-1].low, ring.points[-1].high
    assert ends == pytest.approx((1000 * wanted.low, 1000 * wanted.high))
    few = figure_of(measure(make_study(num_blocks=3)))
    assert {point.low for series in few.panels[0].series for point in series.points} == {None}
    assert "no bars: an interval needs 6 launches" in few.small_print[0]


def test_speed_up_is_paired_and_free_of_drift():
    table = strong({"none": {1: 1, 2: 1}, "ring": {1: 1, 2: 0.75}})
    found = speed_up(ring_on_2_ranks(table))
    assert (found.low, found.center, found.high) == pytest.approx((1.5, 1.5, 1.5))
    assert found.method == "paired t"


def test_without_a_base_case_there_are_times_and_words_for_the_rest():
    figure = figure_of(strong({"ring": {2: 1, 4: 0.9}}))
    times, speeds = figure.panels
    assert list(points(times)) == ["ring"]
    assert (points(speeds), speeds.says) == ({}, "base case not measured")
    assert "No ideal line" in figure.small_print[0]
    assert {row["speed_up"] for row in figure.rows} == {None}


def test_nothing_is_drawn_of_one_rank_or_of_failures():
    assert figure_of(measure([make_record(block=block) for block in range(6)])) is None
    assert figure_of(measure([make_record(num_ranks=2, failure="died")])) is None
