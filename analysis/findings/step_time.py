"""Time per step over ranks. Ideal is flat under weak scaling; under strong scaling it falls, and speed-up rises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dlscale.analysis.curves import Curve, Value, curves_of, limits, missing_from
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.curve_plots import (
    MOST_IN_A_COLUMN,
    is_base,
    plain_series,
    proportional,
    rank_axis,
    wall,
)
from dlscale.analysis.findings.scaling import ScalingRow, base_text, rows_of, scaling_row
from dlscale.analysis.findings.small_print import bars_text, family_figure, span
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Axis, Figure, Guide, Plot
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import RATIO_LIMITS, interval_columns, number

_WIDE = 5  # an axis is logarithmic above this ratio of largest to smallest value


def seconds_per_step(row: ScalingRow) -> Interval | None:
    """Seconds per step of the slowest rank: the median over launches, like the table's throughput."""
    return row.throughput and row.throughput.rate(row.cell.global_batch)


def speed_up(row: ScalingRow) -> Interval | None:
    """Speed-up T(p) / T(b) over the base case's on b ranks."""
    return row.speed_up


def step_time_figure(
    family: Family, rows: Sequence[ScalingRow], provenance: Provenance, form: Form = SCREEN
) -> Figure | None:
    """The time per step, and under strong scaling the speed-up; None if no cell ran on more than 1 rank."""
    curves = curves_of(form.chosen(rows), seconds_per_step)
    shown = [row for curve in curves for row in curve.rows]
    if all(row.cell.num_ranks == 1 for row in shown):
        return None
    strong = family.scaling_mode == "strong"
    base = next((row for row in rows if is_base(row)), None)
    plots = [_times(curves, base, strong=strong)]
    if strong:
        plots.append(_speed_ups(rows[0].base_ranks, curves_of(form.chosen(rows), speed_up), curves))
    return family_figure(
        family,
        rows,
        [row.cell for row in shown],
        provenance,
        name="step-time",
        brief="Time per step of the slowest rank, median over launches; bars: order-statistic intervals.",
        words=_words(rows, curves, base, form, strong=strong),
        panels=tuple(plots),
        lines=[
            scaling_row(row)
            | {"notes": "; ".join(row.notes)}
            | interval_columns("seconds_per_step", seconds_per_step(row))
            for row in shown
        ],
        wide=strong or len({curve.name for curve in curves}) > MOST_IN_A_COLUMN,
    )


def _of_family(study: Measured, family: Family, form: Form) -> Figure | None:
    return step_time_figure(family, rows_of(scaling.FINDING.of(study), family), study.provenance, form)


def _times(curves: Sequence[Curve], base: ScalingRow | None, *, strong: bool) -> Plot:
    """In milliseconds if all steps take less than a second, else in seconds."""
    times = _all(curves, seconds_per_step)
    unit, factor = ("ms", 1e3) if max(time.center for time in times) < 1 else ("s", 1.0)

    def value(row: ScalingRow) -> Interval | None:
        interval = seconds_per_step(row)
        return interval and interval.times(factor)

    x = rank_axis([row for curve in curves for row in curve.rows])
    low, high = limits([time.times(factor) for time in times])
    y = Axis(title=f"time per step [{unit}]", low=0, high=1.12 * high)
    if strong or high / low > _WIDE:
        y = replace(y, kind="log", low=low / 1.3, high=high * 1.3)
    guides: tuple[Guide, ...] = ()
    if base and (single := value(base)):
        flat = Guide(label="ideal", y=single.center)
        guides = (proportional(single.center * base.base_ranks, x, power=-1) if strong else flat,)
    guides += wall([row for curve in curves for row in curve.rows], y)
    return Plot(name="times", title="", says="", x=x, y=y, series=plain_series(curves, value), guides=guides)


def _speed_ups(base: int, curves: Sequence[Curve], among: Sequence[Curve]) -> Plot:
    """The axis has a tick where each number of ranks is ideal."""
    every = [row for curve in among for row in curve.rows]
    ideal = [count / base for count in sorted({row.cell.num_ranks for row in every})]
    low, high = limits(_all(curves, speed_up)) if curves else (ideal[0], ideal[-1])
    x = rank_axis(every)
    y = Axis(
        title=f"speed-up T(p) / T({base})",
        kind="log",
        ticks=tuple((speed, f"{speed:g}") for speed in ideal),
        low=min(low, ideal[0]) / 1.3,
        high=max(high, ideal[-1]) * 1.3,
    )
    return Plot(
        name="speed-ups",
        title="",
        says="base case not measured",
        x=x,
        y=y,
        series=plain_series(curves, speed_up),
        guides=(proportional(1 / base, x), *wall(every, y)),
    )


def _all(curves: Sequence[Curve], value: Value) -> list[Interval]:
    return [interval for curve in curves for row in curve.rows if (interval := value(row))]


def _words(
    rows: Sequence[ScalingRow], curves: Sequence[Curve], base: ScalingRow | None, form: Form, *, strong: bool
) -> Iterator[str]:
    times = _all(curves, seconds_per_step)
    num_launches = span([interval.n for interval in times])
    yield f"The slowest rank's time per step, median over n = {num_launches} launches;"
    yield bars_text(times)
    if base and (single := seconds_per_step(base)):
        how = "in proportion to the ranks" if strong and base.base_ranks > 1 else "divided by the ranks"
        how = how if strong else "the same on all ranks"
        yield f"Ideal: base case none on {base_text(rows)}, {number(1000 * single.center)} ms, {how}."
    else:
        yield f"No ideal line: the base case, none on {base_text(rows)}, is missing."
    if strong and (ratios := [interval for interval in _all(curves, speed_up) if interval.low is not None]):
        yield (
            f"Speed-up: T(p)/T({rows[0].base_ranks}), geometric mean over n = {span([one.n for one in ratios])} blocks "
            f"of launches, bars: {RATIO_LIMITS}, of the paired log ratios."
        )
    if missing := missing_from(form.chosen(rows), curves):
        yield f"No point: {', '.join(missing)}."


FINDINGS = (
    Finding(
        name="step_time",
        title="Time per step",
        compute=lambda study: scaling.FINDING.of(study),
        figures={"step-time": _of_family},
    ),
)
