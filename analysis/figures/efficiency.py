"""Scaling efficiency over ranks, against both base cases, one panel each; the axis starts at 0.

Upper bounds are drawn behind the curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from dlscale.analysis.curves import Curve, Value, curves_of, limits, missing_from
from dlscale.analysis.families import Family
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    GREY,
    IDEAL,
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
from dlscale.analysis.findings.bounds import loosest_bounds
from dlscale.analysis.findings.predicted_points import SimulatedPoint
from dlscale.analysis.findings.scaling import ScalingRow, base_text
from dlscale.analysis.findings.small_print import origin, parity, span, warning
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import backend_name, rate


def against_none(row: ScalingRow | SimulatedPoint) -> Interval | None:
    """Efficiency against base case (a), without a communication layer."""
    return row.efficiency_none


def against_backend(row: ScalingRow) -> Interval | None:
    """Efficiency against base case (b), of the same backend."""
    return row.efficiency_backend


PANELS: tuple[tuple[str, Value], ...] = (
    ("(a) base case: {}, no communication layer", against_none),
    ("(b) base case: {} of the same backend", against_backend),
)


def draw(
    family: Family,
    rows: Sequence[ScalingRow],
    provenance: Provenance,
    form: Form = SCREEN,
    predicted: Sequence[SimulatedPoint] = (),
) -> tuple[Captioned, list[ScalingRow]] | None:
    """The figure and the rows that it shows; None if only base cases have an efficiency.

    What is `predicted` stands beside them in (a).
    """
    chosen = form.chosen(rows)
    panels = [curves_of(chosen, value) for _, value in PANELS]
    shown = list({id(row): row for curves in panels for curve in curves for row in curve.rows}.values())
    if all(row.cell.num_ranks == row.base_ranks for row in shown):
        return None
    # One order for both panels, so that a backend has the same offset and look in both.
    measured = curves_of(chosen, lambda row: row.efficiency_none or row.efficiency_backend)
    bands = band_curves(predicted, against_none, form)
    everywhere = [*measured, *bands]
    points = [point for band in bands for point in band.rows]
    bounds = _bounds(shown)
    figure, axes = figure_with_axes(
        form=form,
        width=DOUBLE_COLUMN_INCHES,
        num_panels=2,
        title=family.title,
        warning=with_doubts(warning(rows), bands),
        subtitle=family.constants,
        handles=[
            *curve_handles(everywhere),
            Line2D([], [], **IDEAL),
            *limit_handles(bounds),
            *evidence_handles(everywhere, form),
            *band_handles(bands),
        ],
        small_print=_small_print(rows, shown, panels, bands, provenance, limit_text(bounds), form=form),
    )
    for panel, (title, value), curves in zip(axes, PANELS, panels, strict=True):
        rank_axis(panel, [*shown, *points])
        # In print the caption explains the letter: one column has no room for the rest.
        whole = title.format(base_text(rows))
        panel.set_title(whole[:3] if form.printed else whole, loc="left")
        panel.axhline(1.0, **IDEAL)
        if value is against_none:
            draw_bands(panel, bands, value, among=everywhere, form=form)
        draw_curves(panel, curves, value, among=everywhere, form=form)
        if not curves:
            panel.text(0.5, 0.5, "base case not measured", transform=panel.transAxes, ha="center")
    draw_limits(axes[0], bounds)
    drawn = [interval for _, value in PANELS for row in shown if (interval := value(row))]
    percent_axis(axes[0], [*drawn, *(interval for point in points if (interval := against_none(point)))])
    return figure, shown


def percent_axis(axes: Axes, intervals: Sequence[Interval]) -> None:
    """Set an axis of efficiencies from 0 to the highest of these intervals."""
    _, high = limits(intervals)
    axes.set_ylim(0, max(1.1, 1.05 * high))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.set_ylabel("scaling efficiency [%]")


def _bounds(shown: Sequence[ScalingRow]) -> dict[str, Points]:
    """Bounds that no point over a backend can exceed, by kind."""
    exchanging = [row for row in shown if row.cell.backend != "none"]
    return dict(loosest_bounds([(row.cell.num_ranks, limit) for row in exchanging for limit in row.limits]))


def _small_print(
    rows: Sequence[ScalingRow],
    shown: Sequence[ScalingRow],
    panels: Sequence[Sequence[Curve]],
    bands: Sequence[BandCurve],
    provenance: Provenance,
    bounds: str,
    *,
    form: Form,
) -> list[str]:
    base = shown[0].base_ranks
    ratios = [
        interval
        for row in shown
        if row.cell.num_ranks != base
        for _, value in PANELS
        if (interval := value(row)) is not None
    ]
    text = [
        f"Efficiency (T(p)/p) / (T({base})/{base}) with T in samples/s; geometric mean over "
        f"n = {span([interval.n for interval in ratios])} blocks of launches, "
        f"bars: {100 * LEVEL:.0f} % t interval of the paired log ratios."
    ]
    if form.printed:
        text += [f"{title.format(base_text(rows))}." for title, _ in PANELS]
    if any("unpaired" in interval.method for interval in ratios):
        text.append("Points without a common block with their base case are unpaired (see the CSV).")
    text.append(bounds)
    if any(interval.low is None for interval in ratios):
        text.append("No bar: too few blocks.")
    bases = [
        f"{backend_name(row.cell)} {rate(row.throughput)}"
        for row in rows
        if row.cell.control == "train" and row.cell.num_ranks == base and row.throughput
    ]
    if bases:
        text.append(f"Base cases, {base_text(rows)}, in samples/s: {'; '.join(bases)}.")
    for name, curves in zip("ab", panels, strict=True):
        if missing := missing_from(form.chosen(rows), curves):
            text.append(f"No point in ({name}): {', '.join(missing)}.")
    text += evidence_text([*(curve for curves in panels for curve in curves), *bands], form)
    return [" ".join(text), *band_notes(bands), *parity(rows), origin(shown, provenance)]


Points = Sequence[tuple[int, float]]
# Distinguished by their dashes; all are grey, because bounds are not measured.
STYLES: dict[str, dict[str, Any]] = {
    "wire": {"linestyle": (0, (1, 1.5))},
    "memory": {"linestyle": (0, (4, 1.5))},
    "loader": {"linestyle": (0, (4, 1.5, 1, 1.5))},
}
_COMMON: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "zorder": 1.2}
_ROUND = 2**0.12  # factor by which a bound extends beyond its first and last number of ranks


def draw_limits(axes: Axes, points: Mapping[str, Points]) -> None:
    """Draw a line through the values of each kind of bound that is below 1 somewhere."""
    for kind, values in binding(points).items():
        ranks = [ranks for ranks, _ in values]
        heights = [height for _, height in values]
        ends = [ranks[0] / _ROUND, *ranks, ranks[-1] * _ROUND]
        axes.plot(
            ends, [heights[0], *heights, heights[-1]], **_COMMON, **STYLES[kind], scalex=False, scaley=False
        )


def limit_handles(points: Mapping[str, Points]) -> list[Line2D]:
    """Legend entries of the bounds that are drawn."""
    return [Line2D([], [], **_COMMON, **STYLES[kind], label=f"bound: {kind}") for kind in binding(points)]


def limit_text(points: Mapping[str, Points]) -> str:
    """Small print that says which bounds are drawn, which never bind, and which are unknown."""
    drawn, known = binding(points), [kind for kind in STYLES if points.get(kind)]
    free = [kind for kind in known if kind not in drawn]
    unknown = [kind for kind in STYLES if kind not in known]
    sentences = (
        [f"Bounds that no point over a backend can exceed, relative to (a): {', '.join(drawn)}."]
        if drawn
        else []
    )
    sentences += [f"Bound by {', '.join(free)}: 100 %."] if free else []
    sentences += [f"Bound not known: {', '.join(unknown)}."] if unknown else []
    return " ".join(sentences)


def binding(points: Mapping[str, Points]) -> dict[str, Points]:
    """The bounds that are below 1 somewhere, in a fixed order."""
    return {kind: points[kind] for kind in STYLES if any(height < 1 for _, height in points.get(kind, ()))}
