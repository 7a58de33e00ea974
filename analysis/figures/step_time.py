"""Time per step over ranks. Ideal is flat under weak scaling; under strong scaling it falls, and speed-up rises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dlscale.analysis.curves import Curve, Value, curves_of, dodge, limits, missing_from
from dlscale.analysis.families import Family
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    IDEAL,
    IDEAL_MARK,
    SINGLE_COLUMN_INCHES,
    curve_handles,
    draw_curves,
    evidence_handles,
    evidence_text,
    rank_axis,
)
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.findings.scaling import ScalingRow, base_text, scaling_row
from dlscale.analysis.findings.small_print import origin, parity, span, warning
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import interval_columns, number

_WIDE = 5  # an axis is logarithmic above this ratio of largest to smallest value


def seconds_per_step(row: ScalingRow) -> Interval | None:
    """Seconds per step of the slowest rank: the median over launches, like the table's throughput."""
    return row.throughput and row.throughput.rate(row.cell.global_batch)


def speed_up(row: ScalingRow) -> Interval | None:
    """Speed-up T(p) / T(b) over the base case's on b ranks."""
    return row.speed_up


def draw(
    family: Family, rows: Sequence[ScalingRow], provenance: Provenance, form: Form = SCREEN
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure and the rows behind it; None if no cell ran on more than 1 rank.

    There is one panel under weak scaling; strong scaling adds a second one with the speed-up.
    """
    curves = curves_of(form.chosen(rows), seconds_per_step)
    shown = [row for curve in curves for row in curve.rows]
    if all(row.cell.num_ranks == 1 for row in shown):
        return None
    strong = family.scaling_mode == "strong"
    base = next(
        (
            row
            for row in rows
            if (row.cell.control, row.cell.backend, row.cell.num_ranks) == ("train", "none", row.base_ranks)
            and row.throughput
        ),
        None,
    )
    num_names = len({curve.name for curve in curves})
    figure, axes = figure_with_axes(
        form=form,
        width=DOUBLE_COLUMN_INCHES if strong or num_names > 5 else SINGLE_COLUMN_INCHES,
        num_panels=2 if strong else 1,
        shared=False,
        title=family.title,
        warning=warning(rows),
        subtitle=family.constants,
        handles=[
            *curve_handles(curves),
            *([Line2D([], [], **IDEAL)] if base else []),
            *evidence_handles(curves, form),
        ],
        small_print=_small_print(rows, curves, base, provenance, strong=strong, form=form),
    )
    _draw_times(axes[0], curves, base, strong=strong, form=form)
    if strong:
        _draw_speed_ups(axes[1], rows, curves, form=form)
    return figure, [_row(row) for row in shown]


def _draw_times(
    axes: Axes, curves: Sequence[Curve], base: ScalingRow | None, *, strong: bool, form: Form
) -> None:
    unit, factor = _unit(curves)
    rank_axis(axes, [row for curve in curves for row in curve.rows])
    if base and (base_interval := seconds_per_step(base)):
        single = base_interval.center * factor
        single *= base.base_ranks if strong else 1
        _draw_ideal(
            axes,
            curves,
            lambda ranks: single / ranks if strong else single,
            marked=strong and not form.printed,
        )
    draw_curves(axes, curves, _scaled(seconds_per_step, factor), form=form)
    low, high = limits([interval.times(factor) for interval in _all(curves, seconds_per_step)])
    if strong or high / low > _WIDE:
        _log_axis(axes, low, high)
    else:
        axes.set_ylim(0, 1.12 * high)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.set_ylabel(f"time per step [{unit}]")


def _draw_speed_ups(axes: Axes, rows: Sequence[ScalingRow], among: Sequence[Curve], *, form: Form) -> None:
    curves = curves_of(form.chosen(rows), speed_up)
    rank_axis(axes, [row for curve in among for row in curve.rows])
    ranks = sorted({row.cell.num_ranks for curve in among for row in curve.rows})
    base = rows[0].base_ranks
    _draw_ideal(axes, among, lambda ranks: ranks / base, marked=not form.printed)
    draw_curves(axes, curves, speed_up, among=among, form=form)
    if not curves:
        axes.text(0.5, 0.5, "base case not measured", transform=axes.transAxes, ha="center")
    ideal = [count / base for count in ranks]
    low, high = limits(_all(curves, speed_up)) if curves else (ideal[0], ideal[-1])
    axes.set_yscale("log", base=2)
    axes.set_ylim(min(low, ideal[0]) / 1.3, max(high, ideal[-1]) * 1.3)
    axes.yaxis.set_major_locator(FixedLocator(ideal))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylabel(f"speed-up T(p) / T({base})")


def _draw_ideal(axes: Axes, curves: Sequence[Curve], at: Callable[[float], float], *, marked: bool) -> None:
    """Draw the ideal line and, if it is `marked`, its level behind the points, for those shifted on the x axis."""
    ends = axes.get_xlim()
    steps = [ends[0] * (ends[1] / ends[0]) ** (index / 32) for index in range(33)]
    axes.plot(steps, [at(ranks) for ranks in steps], **IDEAL, scalex=False)
    if marked:
        num_places = len({curve.name for curve in curves})
        side = dodge(num_places - 1, num_places) * 1.04
        for ranks in sorted({row.cell.num_ranks for curve in curves for row in curve.rows}):
            axes.plot([ranks / side, ranks * side], [at(ranks)] * 2, **IDEAL_MARK, scalex=False)


def _log_axis(axes: Axes, low: float, high: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(low / 1.3, high * 1.3)
    wide = high / low > _WIDE
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_minor_locator(NullLocator())


def _unit(curves: Sequence[Curve]) -> tuple[str, float]:
    """Unit of time and its factor: milliseconds if all steps take less than a second, else seconds."""
    longest = max(interval.center for interval in _all(curves, seconds_per_step))
    return ("ms", 1000.0) if longest < 1 else ("s", 1.0)


def _scaled(value: Value, factor: float) -> Value:
    def scaled(row: ScalingRow) -> Interval | None:
        interval = value(row)
        return interval and interval.times(factor)

    return scaled


def _all(curves: Sequence[Curve], value: Value) -> list[Interval]:
    return [interval for curve in curves for row in curve.rows if (interval := value(row))]


def _row(row: ScalingRow) -> dict[str, Any]:
    return {
        **scaling_row(row),
        "notes": "; ".join(row.notes),
        **interval_columns("seconds_per_step", seconds_per_step(row)),
    }


def _small_print(
    rows: Sequence[ScalingRow],
    curves: Sequence[Curve],
    base: ScalingRow | None,
    provenance: Provenance,
    *,
    strong: bool,
    form: Form,
) -> list[str]:
    times = _all(curves, seconds_per_step)
    levels = sorted({100 * interval.level for interval in times if interval.low is not None})
    bars = ", ".join(f"{level:.1f}" for level in levels)
    text = [
        f"The slowest rank's time per step, median over n = {span([interval.n for interval in times])} launches;",
        f"bars: {bars} % order-statistic interval." if levels else "no bars: an interval needs 6 launches.",
    ]
    if base and (base_interval := seconds_per_step(base)):
        how = "in proportion to the ranks" if strong and base.base_ranks > 1 else "divided by the ranks"
        how = how if strong else "the same on all ranks"
        text.append(
            f"Ideal: base case none on {base_text(rows)}, {number(1000 * base_interval.center)} ms, {how}."
        )
    else:
        text.append(f"No ideal line: the base case, none on {base_text(rows)}, is missing.")
    if strong and (ratios := [interval for interval in _all(curves, speed_up) if interval.low is not None]):
        blocks = span([interval.n for interval in ratios])
        text.append(
            f"Speed-up: T(p)/T({rows[0].base_ranks}), geometric mean over n = {blocks} blocks of launches, "
            f"bars: {100 * LEVEL:.0f} % t interval of the paired log ratios."
        )
    if missing := missing_from(form.chosen(rows), curves):
        text.append(f"No point: {', '.join(missing)}.")
    text += evidence_text(curves, form)
    return [" ".join(text), *parity(rows), origin([row for c in curves for row in c.rows], provenance)]
