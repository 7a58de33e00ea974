"""Draws one panel: bands behind, predicted curves, published points with their lines, our points in front, the axes.

A statement in words is a mark at one place, or a band or thick line over a range. Axes have a range, ticks and
labels even if the panel is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import nan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dlscale.analysis.curves import Curve, dodge
from dlscale.analysis.figures.drawing import IDEAL, REFERENCE, RIM, line_style, looks_of, marker_style
from dlscale.analysis.published.catalogue import Figure
from dlscale.analysis.published.panels import Mark, Plot, StatementMark
from dlscale.analysis.render.theme import Look
from dlscale.analysis.text import number

PUBLISHED, SIMULATED = "published", "simulated"
NOT_PUBLISHED = "curve not published in text"
DOTTED = (0, (1, 1.2))
SMALL = 6.3  # points; font size of words inside a panel
_BAND: dict[str, Any] = {"color": "#b3b3b3", "alpha": 0.45, "linewidth": 0, "zorder": 0.5}
_THICK: dict[str, Any] = {"color": "#b3b3b3", "linewidth": 4, "solid_capstyle": "butt", "zorder": 1.2}
_WORDS: dict[str, Any] = {
    "fontsize": SMALL,
    "color": "#333333",
    "zorder": 4,
    "textcoords": "offset points",
    "bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
}
_BARS: dict[str, Any] = {"ecolor": RIM, "elinewidth": 0.7, "capsize": 1.8, "barsabove": True}
_PREDICTED_ALPHA = 0.18
_ASIDE_OCTAVES = 0.2
_OCTAVE_MARGIN = 0.45
_CLOSE = 1.45  # tick labels closer than this factor overlap


def panel_looks(figure: Figure, plots: Sequence[Plot]) -> dict[str, Look]:
    """Looks by name in the legend: our series have their backend's, published ones the remaining looks."""
    names: list[tuple[str, str, str]] = [
        (point.name, point.row.cell.backend, str(point.row.evidence)) for plot in plots for point in plot.ours
    ]
    names += [(curve.label, curve.backend, SIMULATED) for plot in plots for curve in plot.predicted]
    labels = [mark.label for plot in plots for mark in plot.marks] + list(stated_labels(figure, plots))
    if figure.named_points:
        labels = [PUBLISHED]
    names += [(label, f"published {label}", PUBLISHED) for label in labels]
    return looks_of(
        [Curve(name=name, backend=backend, evidence=kind, rows=()) for name, backend, kind in names]
    )


def stated_labels(figure: Figure, plots: Sequence[Plot]) -> Iterator[str]:
    """The names in the legend of statements that are a number at one place."""
    for plot in plots:
        yield from (figure.label(mark.statement.series) for mark in plot.statements if mark.single)


def draw_panel(axes: Axes, plot: Plot, figure: Figure, looks: Mapping[str, Look]) -> None:
    """Draw everything inside the axes, whose limits are already set."""
    ends = axes.get_xlim()
    for heights in ideal_lines(plot, figure, ends):
        axes.plot(ends, heights, **IDEAL, scalex=False, scaley=False)
    if plot.panel.layout == "relative_throughput":
        axes.axhline(1.0, **REFERENCE)
    _draw_statements(axes, plot, figure, looks)
    _draw_predicted(axes, plot, looks)
    if figure.named_points:
        _draw_named(axes, plot, looks[PUBLISHED])
    else:
        _draw_series(axes, plot, looks)
    _draw_ours(axes, plot, looks)
    if plot.empty:
        axes.text(0.5, 0.5, NOT_PUBLISHED, transform=axes.transAxes, color="#555555", style="italic",
                  ha="center", va="center", bbox={"facecolor": "white", "edgecolor": "none"})  # fmt: skip


def _draw_statements(axes: Axes, plot: Plot, figure: Figure, looks: Mapping[str, Look]) -> None:
    """Draw all statements of a panel that have numbers; equal labels are written once."""
    written: set[str] = set()
    places = [(mark.x[0], figure.label(mark.statement.series)) for mark in plot.statements if mark.single]
    for mark in plot.statements:
        words = "" if mark.statement.label in written else mark.statement.label
        written.add(words)
        low, high = (end or 0 for end in mark.x)
        if mark.single:
            name, y = figure.label(mark.statement.series), mark.high or 0
            here = [label for x, label in places if x == mark.x[0]]
            x = low * (_aside(name, here) if plot.panel.aside else 1.0)
            style = line_style(looks[name], joined=False) | marker_style(looks[name], PUBLISHED)
            axes.plot([x], [y], **style, zorder=3)
            _beside(axes, words, x, y)
        elif mark.statement.quantity == "scaling_ends":
            axes.axvspan(low, high, **_BAND)
            place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "xytext": (4, 0), "ha": "left"}
            axes.annotate(words.replace(": ", ":\n"), (high, 0.05), va="bottom", **place, **_WORDS)
        elif mark.statement.quantity == "linear":
            heights = [1 / plot.panel.unit] * 2
            if plot.panel.layout == "speed_up":
                heights = [low / figure.base_x, high / figure.base_x]
            axes.plot([low, high], heights, **_THICK)
            _beside(axes, words, high, heights[1], down=4, up=7)
        else:
            _draw_range(axes, mark, words)


def _draw_range(axes: Axes, mark: StatementMark, words: str) -> None:
    """Draw a statement over its range of x, by default the whole axis; an open end is an arrow."""
    left, right = (end or edge for end, edge in zip(mark.x, axes.get_xlim(), strict=True))
    if mark.low is None or mark.high is None:
        y = (mark.high if mark.low is None else mark.low) or 0
        arrow = "v" if mark.low is None else "^"
        axes.plot([left], [y], marker=arrow, color=RIM, markersize=4, linestyle="", zorder=3)
        _beside(axes, words, left, y)
    elif left == right:
        axes.plot([left, left], [mark.low, mark.high], **_THICK | {"linewidth": 5, "color": "#8c8c8c"})
        _beside(axes, words, left, (mark.low + mark.high) / 2)
    elif mark.low == mark.high:
        axes.plot([left, right], [mark.low, mark.low], **_THICK)
        # An efficiency has the ideal line above it; others have room there.
        _beside(axes, words, left, mark.low, down=8 if mark.statement.quantity == "efficiency" else -8)
    else:
        axes.fill_between([left, right], mark.low, mark.high, **_BAND)
        _beside(axes, words, left, mark.high, down=-6)


def _beside(axes: Axes, words: str, x: float, y: float, *, down: float = 0, up: float | None = None) -> None:
    """Write words next to a place, on the side with room: right and `down` points below, or left and `up` above."""
    if not words:
        return
    low, high = axes.get_xlim()
    right = x <= ((low * high) ** 0.5 if axes.get_xscale() == "log" else (low + high) / 2)
    shift = -down if right or up is None else up
    side = "left" if right else "right"
    axes.annotate(words, (x, y), xytext=(6 if right else -6, shift), ha=side, va="center", **_WORDS)


def _draw_predicted(axes: Axes, plot: Plot, looks: Mapping[str, Look]) -> None:
    """Draw each predicted curve with its band behind it, dotted where the published line has the same look.

    Markers of several curves stand beside each other, as ours do; lines and bands are where they are.
    """
    published = {marks[0].label for marks in plot.series if plot.joined(marks)}
    for index, curve in enumerate(plot.predicted):
        look, places = looks[curve.label], [x for x, _ in curve.points]
        shift = dodge(index, len(plot.predicted)) if axes.get_xscale() == "log" else 1.0
        low, center, high = (
            [getattr(band, end) / plot.panel.unit for _, band in curve.points]
            for end in ("low", "median", "high")
        )
        axes.fill_between(
            places, low, high, color=look.color, alpha=_PREDICTED_ALPHA, linewidth=0, zorder=1.1
        )
        joined = len(places) > 1
        dotted = {"linestyle": DOTTED} if joined and curve.label in published else {}
        axes.plot(places, center, zorder=2, **line_style(look, joined=joined) | dotted)
        style = line_style(look, joined=False) | marker_style(look, SIMULATED)
        axes.plot([x * shift for x in places], center, zorder=2.1, **style)


def _draw_series(axes: Axes, plot: Plot, looks: Mapping[str, Look]) -> None:
    for marks in plot.series:
        look, label = looks[marks[0].label], marks[0].label
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
    """The x at which a mark is drawn."""
    here = [peer.label for peer in plot.marks if peer.x == mark.x]
    return (mark.x or 0) * (_aside(mark.label, here) if plot.panel.aside else 1.0)


def _aside(name: str, among: Sequence[str]) -> float:
    """Factor on x that shifts a series from others at the same place, so that their markers do not overlap."""
    return float(2.0 ** (_ASIDE_OCTAVES * (among.index(name) - (len(among) - 1) / 2)))


def _draw_named(axes: Axes, plot: Plot, look: Look) -> None:
    """Draw each point with the name of its work next to it, on a side without another point."""
    log = plot.panel.y_scale == "log"
    marks = [(mark.x, mark) for mark in plot.marks if mark.x is not None]
    for x, mark in marks:
        axes.plot([x], [mark.y], **line_style(look, joined=False), **marker_style(look, PUBLISHED))
        near = [
            (place, peer)
            for place, peer in marks
            if peer is not mark
            and (max(mark.y, peer.y) < 1.6 * min(mark.y, peer.y) if log else abs(mark.y - peer.y) < 8)
        ]
        left = any(x < place < 8 * x for place, _ in near)
        pair = [peer for place, peer in near if place == x]
        axes.annotate(
            mark.value.series.replace(" et al.", ""),
            (x, mark.y),
            xytext=(-5 if left else 5, 0 if not pair else 3.5 if mark.y > pair[0].y else -3.5),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=SMALL,
        )


def _draw_ours(axes: Axes, plot: Plot, looks: Mapping[str, Look]) -> None:
    """Draw our points as markers without lines."""
    names = list(dict.fromkeys(point.name for point in plot.ours))
    for point in plot.ours:
        look, value, unit = looks[point.name], point.value, plot.panel.unit
        log = axes.get_xscale() == "log"
        shift = dodge(names.index(point.name), len(names)) if log else 1.0
        below = nan if value.low is None else (value.center - value.low) / unit
        above = nan if value.high is None else (value.high - value.center) / unit
        axes.errorbar(
            [point.x * shift],
            [value.center / unit],
            yerr=[[below], [above]],
            zorder=5,
            label=point.name,
            **_BARS,
            **line_style(look, joined=False),
            **marker_style(look, str(point.row.evidence)),
        )


def x_axis(axes: Axes, figure: Figure, plots: Sequence[Plot]) -> None:
    """Set the x axis: the catalogue's range, extended to our points, with plain numbers."""
    places = [place for plot in plots for place in plot.places]
    low, high = min((figure.x_range[0], *places)), max((figure.x_range[1], *places))
    if figure.x_scale == "linear":
        margin = 0.06 * (high - low)
        axes.set_xlim(low - margin, high + margin)
        known = not all(plot.empty for plot in plots)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True) if known else NullLocator())
    else:
        axes.set_xscale("log", base=2 if figure.x_scale == "log2" else 10)
        margin = _OCTAVE_MARGIN * (1.4 if any(plot.panel.aside for plot in plots) else 1)
        axes.set_xlim(low * 2**-margin, high * 2**margin)
        axes.xaxis.set_minor_locator(NullLocator())
        if figure.x_scale == "log2":
            marks = {mark.x for plot in plots for mark in plot.marks if mark.x is not None}
            own = {point.x for plot in plots for point in plot.ours}
            axes.xaxis.set_major_locator(FixedLocator(_octaves(low, high, marks | own)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    unit = "" if figure.x_unit in figure.x_label else f" [{figure.x_unit}]"
    axes.set_xlabel(figure.x_label + unit)


def _octaves(low: float, high: float, places: set[float]) -> list[float]:
    """Ticks at doublings of the lowest value, and at other places that are far enough from those."""
    ticks = [low]
    while ticks[-1] * 2 <= high * 1.001:
        ticks.append(ticks[-1] * 2)
    if len(ticks) > 8:
        ticks = ticks[::2]
    if 1 < high / ticks[-1] < _CLOSE:
        ticks[-1] = high
    far = [p for p in (*places, high) if all(max(p / tick, tick / p) > _CLOSE for tick in ticks)]
    return sorted({*ticks, *far})


def y_axis(axes: Axes, plot: Plot, figure: Figure, alike: Sequence[Plot]) -> None:
    """Set the y axis: efficiency from 0, others around the known values; without any it has no ticks.

    `alike` are the plots of the same quantity, including this one; they share a scale.
    """
    panel, heights = plot.panel, [height for peer in alike for height in peer.heights]
    if panel.layout == "efficiency":
        axes.set_ylim(0, max(1.12 / panel.unit, 1.06 * max(heights, default=0)))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    elif panel.layout == "speed_up":
        highest_x = max((figure.x_range[1], *(place for peer in alike for place in peer.places)))
        _axis_scale(axes, plot, min([1.0, *heights]), max([highest_x / figure.base_x, *heights]))
    elif heights:
        heights += _reach(plot, figure)
        _axis_scale(axes, plot, min(heights), max(heights))
    else:
        axes.set_yscale(panel.y_scale)
        axes.set_ylim((1, 100) if panel.y_scale == "log" else (0, 1))
        axes.yaxis.set_major_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel(f"{panel.y_label} [{panel.y_unit}]")


def _reach(plot: Plot, figure: Figure) -> list[float]:
    """Heights that an unpublished curve would reach, so that there is room for one of ours."""
    if plot.panel.layout == "relative_throughput":
        return [1.0]
    if plot.in_full or plot.panel.layout != "throughput":
        return []
    places = [(mark.x[1], mark.high) for mark in plot.statements]
    return [y * end / x for x, y in places if x and y for end in figure.x_range]


def _axis_scale(axes: Axes, plot: Plot, low: float, high: float) -> None:
    axes.yaxis.set_minor_locator(NullLocator())
    if plot.panel.y_scale == "linear":
        # From 0, unless the values vary little relative to their size.
        bottom = 0.0 if low < 0.6 * high or low == high else low - 0.15 * (high - low)
        room = 0.12 * (high - bottom) or 0.5 * abs(high)
        axes.set_ylim(bottom, high + room)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        return
    axes.set_yscale("log")
    if high < 3 * low:
        low, high = low / 2, high * 2
    axes.set_ylim(low / 1.5, high * 1.5)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 500 else (1,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def ideal_lines(plot: Plot, figure: Figure, ends: tuple[float, float]) -> list[tuple[float, float]]:
    """Lines of ideal scaling as y at both ends of the x axis, one per starting point of a curve."""
    low, high = ends
    if plot.panel.layout == "efficiency":
        return [(1 / plot.panel.unit, 1 / plot.panel.unit)]
    if plot.panel.layout == "speed_up":
        return [(low / figure.base_x, high / figure.base_x)]
    if plot.panel.layout != "throughput":
        return []
    return [(y * low / x, y * high / x) for x, y in _starts(plot)]


def _starts(plot: Plot) -> list[tuple[float, float]]:
    """The first point of each published series, else values stated for one device, else the first prediction."""
    starts = [(marks[0].x, marks[0].y) for marks in plot.series if marks[0].x is not None]
    if not starts:
        stated = [dict.fromkeys((mark.low, mark.high)) for mark in plot.statements if mark.x == (1, 1)]
        starts = [(1.0, end) for ends in stated for end in ends if end is not None]
    if not starts:
        firsts = [curve.points[0] for curve in plot.predicted[:1]]
        starts = [(x, band.median / plot.panel.unit) for x, band in firsts]
    return starts
