"""Throughput over ranks, double logarithmic, with the ideal line through the base case."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dlscale.analysis.curves import Curve, Point, curves_of, dodge, limits, missing_from
from dlscale.analysis.families import Family
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    IDEAL,
    IDEAL_MARK,
    REFERENCE,
    SINGLE_COLUMN_INCHES,
    curve_handles,
    draw_curves,
    evidence_handles,
    evidence_text,
    rank_axis,
)
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.figures.predicted import (
    BandCurve,
    band_curves,
    band_handles,
    band_notes,
    draw_bands,
    with_doubts,
)
from dlscale.analysis.findings.predicted_points import SimulatedPoint
from dlscale.analysis.findings.scaling import ScalingRow, base_text
from dlscale.analysis.findings.small_print import origin, parity, span, warning
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import number, rate


def throughput(row: ScalingRow | SimulatedPoint) -> Interval | None:
    """Samples per second over all ranks."""
    return row.throughput


def draw(
    family: Family,
    rows: Sequence[ScalingRow],
    provenance: Provenance,
    form: Form = SCREEN,
    predicted: Sequence[SimulatedPoint] = (),
) -> tuple[Captioned, list[ScalingRow]] | None:
    """The figure and the rows that it shows, beside what is `predicted`; None if no cell has a rate.

    The figure is one column of a page wide, or two with more than 5 curves.
    """
    curves = curves_of(form.chosen(rows), throughput)
    if not curves:
        return None
    bases = [row for row in rows if _is_base(row)]
    base = bases[0] if len({row.family for row in bases}) == 1 else None
    reference = next((row for row in rows if row.cell.control == "whole_machine" and row.throughput), None)
    shown = [row for curve in curves for row in curve.rows] + ([reference] if reference else [])
    bands = band_curves(predicted, throughput, form)
    every = [*curves, *bands]
    names = {curve.name for curve in every}
    figure, (axes,) = figure_with_axes(
        form=form,
        width=SINGLE_COLUMN_INCHES if len(names) <= 5 else DOUBLE_COLUMN_INCHES,
        num_panels=1,
        title=family.title,
        warning=with_doubts(warning(rows), bands),
        subtitle=family.constants,
        handles=[*_handles(every, base, reference, form), *band_handles(bands)],
        small_print=_small_print(rows, curves, bands, base, reference, provenance, form=form),
    )
    rank_axis(axes, [row for curve in every for row in curve.rows])
    if base and base.throughput:
        _draw_ideal(axes, base.throughput.center / base.base_ranks, every, form=form)
    if reference and reference.throughput:
        axes.axhline(reference.throughput.center, **REFERENCE)
    draw_bands(axes, bands, throughput, among=every, form=form)
    draw_curves(axes, curves, throughput, among=every, form=form)
    rate_axis(axes, [*shown, *(point for band in bands for point in band.rows)])
    return figure, shown


def _draw_ideal(axes: Axes, base_rate: float, curves: Sequence[Curve], *, form: Form) -> None:
    """Draw the line proportional to ranks, and a level mark with its value at each number of ranks.

    Points are shifted on the x axis, so next to a sloped line they would seem to lie above or below it. In print they
    are not, and need no mark.
    """
    ends = axes.get_xlim()
    axes.plot(ends, [base_rate * ranks for ranks in ends], **IDEAL, scalex=False)
    if form.printed:
        return
    num_places = len({curve.name for curve in curves})
    side = dodge(num_places - 1, num_places) * 1.04
    for ranks in sorted({row.cell.num_ranks for curve in curves for row in curve.rows}):
        axes.plot([ranks / side, ranks * side], [base_rate * ranks] * 2, **IDEAL_MARK, scalex=False)


def _is_base(row: ScalingRow) -> bool:
    cell = row.cell
    return (cell.control, cell.backend, cell.num_ranks) == (
        *("train", "none"),
        row.base_ranks,
    ) and row.throughput is not None


def _handles(
    curves: Sequence[Curve], base: ScalingRow | None, reference: ScalingRow | None, form: Form
) -> list[Line2D]:
    handles = curve_handles(curves)
    if base:
        handles.append(Line2D([], [], **IDEAL))
    if reference:
        label = f"1 rank, {reference.cell.cores_per_rank} cores"
        handles.append(Line2D([], [], **REFERENCE, label=label))
    return handles + evidence_handles(curves, form)


def rate_axis(axes: Axes, rows: Sequence[Point]) -> None:
    """Set a logarithmic axis that spans all intervals, with plain numbers; round steps if it spans little."""
    low, high = limits([row.throughput for row in rows if row.throughput])
    axes.set_yscale("log")
    axes.set_ylim(low / 1.2, high * 1.2)
    wide = high / low > 12
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.set_ylabel("throughput [samples/s]")


def _small_print(
    rows: Sequence[ScalingRow],
    curves: Sequence[Curve],
    bands: Sequence[BandCurve],
    base: ScalingRow | None,
    reference: ScalingRow | None,
    provenance: Provenance,
    *,
    form: Form,
) -> list[str]:
    shown = [row for curve in curves for row in curve.rows]
    intervals = [row.throughput for row in shown if row.throughput]
    levels = sorted({100 * interval.level for interval in intervals if interval.low is not None})
    bars = ", ".join(f"{level:.1f}" for level in levels)
    text = [
        f"Median over n = {span([interval.n for interval in intervals])} launches, by the slowest rank's time.",
        f"Bars: {bars} % order-statistic interval." if levels else "No bars: an interval needs 6 launches.",
    ]
    if levels and any(interval.low is None for interval in intervals):
        text.append("No bar: fewer than 6 launches.")
    if base:
        mark = "" if form.printed else "; its level is marked behind the points, which are moved aside"
        text.append(
            f"Ideal: through the base case, none on {base_text(rows)}, {rate(base.throughput)} samples/s{mark}."
        )
    elif any(_is_base(row) for row in rows):
        text.append("No ideal line: curves have base cases of their own.")
    else:
        text.append(f"No ideal line: the base case, none on {base_text(rows)}, is missing.")
    if reference:
        text.append(
            f"Dotted: whole-machine reference, 1 rank on {reference.cell.cores_per_rank} cores, "
            f"{rate(reference.throughput)} samples/s; not a base case."
        )
    if missing := missing_from(form.chosen(rows), curves):
        text.append(f"No point: {', '.join(missing)}.")
    text += evidence_text([*curves, *bands], form)
    return [" ".join(text), *band_notes(bands), *parity(rows), origin(shown, provenance)]
