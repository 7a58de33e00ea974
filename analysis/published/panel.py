"""Drawing one panel: bands behind, published points with their lines, points of ours in front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from matplotlib.axes import Axes

from dlscale.analysis.figures.curves import Curve, dodge
from dlscale.analysis.figures.style import (
    IDEAL,
    REFERENCE,
    RIM,
    Look,
    line_style,
    looks_of,
    marker_style,
)
from dlscale.analysis.published.axes import ideal_lines
from dlscale.analysis.published.catalogue import Figure
from dlscale.analysis.published.marks import Mark, Plot, aside
from dlscale.analysis.published.said import PUBLISHED, SMALL, draw_said, is_mark

NOT_PUBLISHED = "curve not published in text"
_BARS: dict[str, Any] = {"ecolor": RIM, "elinewidth": 0.7, "capsize": 1.8, "barsabove": True}


def looks(figure: Figure, plots: Sequence[Plot]) -> dict[str, Look]:
    """Name in the legend -> its look: of ours the backend's own, of published series those that are left."""
    curves = [
        Curve(name=point.name, backend=point.row.cell.backend, evidence=str(point.row.evidence), rows=())
        for plot in plots
        for point in plot.ours
    ]
    if figure.named_points:
        names = [PUBLISHED]
    else:
        names = [mark.label for plot in plots for mark in plot.marks]
        names += [figure.label(one.statement.series) for plot in plots for one in plot.said if is_mark(one)]
    curves += [Curve(name=name, backend=f"published {name}", evidence=PUBLISHED, rows=()) for name in names]
    return looks_of(curves)


def draw(axes: Axes, plot: Plot, figure: Figure, found: Mapping[str, Look]) -> None:
    """Everything but the axes themselves; their limits are set."""
    ends = axes.get_xlim()
    for heights in ideal_lines(plot, figure, ends):
        axes.plot(ends, heights, **IDEAL, scalex=False, scaley=False)
    if plot.panel.layout == "relative_throughput":
        axes.axhline(1.0, **REFERENCE)
    draw_said(axes, plot, figure, found)
    if figure.named_points:
        _draw_named(axes, plot, found[PUBLISHED])
    else:
        _draw_series(axes, plot, found)
    _draw_ours(axes, plot, found)
    if plot.empty:
        axes.text(0.5, 0.5, NOT_PUBLISHED, transform=axes.transAxes, color="#555555", style="italic",
                  ha="center", va="center", bbox={"facecolor": "white", "edgecolor": "none"})  # fmt: skip


def _draw_series(axes: Axes, plot: Plot, found: Mapping[str, Look]) -> None:
    for marks in plot.series.values():
        look, label = found[marks[0].label], marks[0].label
        if any(mark.x is None for mark in marks):
            axes.axhline(marks[0].y, **line_style(look, joined=True), zorder=2)
            continue
        axes.errorbar(
            [_place(mark, plot) for mark in marks],
            [mark.y for mark in marks],
            yerr=[nan if mark.half_width is None else mark.half_width for mark in marks],
            zorder=3,
            label=label,
            **_BARS,
            **line_style(look, joined=plot.joined(marks)),
            **marker_style(look, PUBLISHED),
        )


def _place(mark: Mark, plot: Plot) -> float:
    """Its x as drawn."""
    here = [other.label for other in plot.marks if other.x == mark.x]
    return (mark.x or 0) * (aside(mark.label, here) if plot.panel.aside else 1.0)


def _draw_named(axes: Axes, plot: Plot, look: Look) -> None:
    """Each point with the name of its work beside it, where no other point is."""
    log = plot.panel.y_scale == "log"
    marks = [(mark.x, mark) for mark in plot.marks if mark.x is not None]
    for x, mark in marks:
        axes.plot([x], [mark.y], **line_style(look, joined=False), **marker_style(look, PUBLISHED))
        near = [
            (place, other) for place, other in marks if other is not mark and _close(mark, other, log=log)
        ]
        left = any(x < place < 8 * x for place, _ in near)
        pair = [other for place, other in near if place == x]
        axes.annotate(
            mark.value.series.replace(" et al.", ""),
            (x, mark.y),
            xytext=(-5 if left else 5, 0 if not pair else 3.5 if mark.y > pair[0].y else -3.5),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=SMALL,
        )


def _close(mark: Mark, other: Mark, *, log: bool) -> bool:
    """Whether two labels at these heights would touch."""
    return max(mark.y, other.y) < 1.6 * min(mark.y, other.y) if log else abs(mark.y - other.y) < 8


def _draw_ours(axes: Axes, plot: Plot, found: Mapping[str, Look]) -> None:
    """By marker, never joined."""
    names = list(dict.fromkeys(point.name for point in plot.ours))
    for point in plot.ours:
        look, index = found[point.name], names.index(point.name)
        shift = dodge(index, len(names)) if axes.get_xscale() == "log" else 1.0
        y, low, high = point.value.center, point.value.low, point.value.high
        axes.errorbar(
            [point.x * shift],
            [plot.shown(y)],
            yerr=[
                [nan if low is None else plot.shown(y - low)],
                [nan if high is None else plot.shown(high - y)],
            ],
            zorder=5,
            label=point.name,
            **_BARS,
            **line_style(look, joined=False),
            **marker_style(look, str(point.row.evidence)),
        )
