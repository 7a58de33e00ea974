"""Scaling efficiency over ranks, against both base cases, one panel each; the axis starts at 0."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from dlscale.analysis.bounds_words import loosest
from dlscale.analysis.family import Family
from dlscale.analysis.figures.curves import Curve, Value, curves_of, missing_from
from dlscale.analysis.figures.draw import curve_handles, draw_curves, evidence_handles, limits, rank_axis
from dlscale.analysis.figures.limits import Points, draw_limits, limit_handles, limit_text
from dlscale.analysis.figures.page import origin, page, parity, span, warning
from dlscale.analysis.figures.style import DOUBLE_COLUMN_INCHES, IDEAL
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.scaling import Row
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.words import backend_name, rate


def against_none(row: Row) -> Interval | None:
    """Efficiency against 1 rank without a communication layer."""
    return row.efficiency_none


def against_backend(row: Row) -> Interval | None:
    """Efficiency against 1 rank of the same backend."""
    return row.efficiency_backend


PANELS: tuple[tuple[str, Value], ...] = (
    ("(a) base case: 1 rank, no communication layer", against_none),
    ("(b) base case: 1 rank of the same backend", against_backend),
)


def draw(family: Family, rows: Sequence[Row], provenance: Provenance) -> tuple[Figure, list[Row]] | None:
    """The figure and the rows that it shows; None if nothing but base cases has an efficiency."""
    panels = [curves_of(rows, value) for _, value in PANELS]
    shown = list({id(row): row for curves in panels for curve in curves for row in curve.rows}.values())
    if all(row.cell.num_ranks == 1 for row in shown):
        return None
    # One order for both panels, so that a backend stands in the same place and has the same look in both.
    everywhere = curves_of(rows, lambda row: row.efficiency_none or row.efficiency_backend)
    bounds = _bounds(shown)
    figure, axes = page(
        width=DOUBLE_COLUMN_INCHES,
        num_panels=2,
        title=family.title,
        warning=warning(rows),
        subtitle=family.constants,
        handles=[
            *curve_handles(everywhere),
            Line2D([], [], **IDEAL),
            *limit_handles(bounds),
            *evidence_handles(everywhere),
        ],
        small_print=_small_print(rows, shown, panels, provenance, limit_text(bounds)),
    )
    for panel, (title, value), curves in zip(axes, PANELS, panels, strict=True):
        rank_axis(panel, shown)
        panel.set_title(title, loc="left")
        panel.axhline(1.0, **IDEAL)
        draw_curves(panel, curves, value, among=everywhere)
        if not curves:
            panel.text(0.5, 0.5, "base case not measured", transform=panel.transAxes, ha="center")
    draw_limits(axes[0], bounds)
    _, high = limits([one for _, value in PANELS for row in shown if (one := value(row))])
    axes[0].set_ylim(0, max(1.1, 1.05 * high))
    axes[0].yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes[0].yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes[0].set_ylabel("scaling efficiency [%]")
    return figure, shown


def _bounds(shown: Sequence[Row]) -> dict[str, Points]:
    """What no point over a backend can exceed, by kind of bound."""
    exchanging = [row for row in shown if row.cell.backend != "none"]
    return dict(loosest([(row.cell.num_ranks, limit) for row in exchanging for limit in row.limits]))


def _small_print(
    rows: Sequence[Row],
    shown: Sequence[Row],
    panels: Sequence[Sequence[Curve]],
    provenance: Provenance,
    bounds: str,
) -> list[str]:
    ratios = [
        one
        for row in shown
        if row.cell.num_ranks > 1
        for _, value in PANELS
        if (one := value(row)) is not None
    ]
    text = [
        "Efficiency (T(p)/p) / (T(1)/1) with T in samples/s; geometric mean over "
        f"n = {span([one.n for one in ratios])} blocks of launches, "
        f"bars: {100 * LEVEL:.0f} % t interval of the paired log ratios."
    ]
    if any("unpaired" in one.method for one in ratios):
        text.append("Points without a common block with their base case are unpaired (see the CSV).")
    text.append(bounds)
    if any(one.low is None for one in ratios):
        text.append("No bar: too few blocks.")
    bases = [
        f"{backend_name(row.cell)} {rate(row.throughput)}"
        for row in rows
        if row.cell.control == "train" and row.cell.num_ranks == 1 and row.throughput
    ]
    if bases:
        text.append(f"Base cases, 1 rank, in samples/s: {'; '.join(bases)}.")
    for name, curves in zip("ab", panels, strict=True):
        if missing := missing_from(rows, curves):
            text.append(f"No point in ({name}): {', '.join(missing)}.")
    return [" ".join(text), *parity(rows), origin(shown, provenance)]
