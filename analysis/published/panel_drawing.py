"""Draws one panel: bands behind, predicted curves, published points with their lines, our points in front, the axes.

A statement in words is a mark at one place, or a band or thick line over a range. Axes have a range, ticks and
labels even if the panel is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dlscale.analysis.curves import Curve, dodge
from dlscale.analysis.figures.drawing import IDEAL, REFERENCE, RIM, line_style, looks_of, marker_style
from dlscale.analysis.published.catalogue import Figure
from dlscale.analysis.published.panels import Mark, Plot, StatementMark, aside
from dlscale.analysis.published.values import factor
from dlscale.analysis.render.theme import Look
from dlscale.analysis.text import number

PUBLISHED = "published"
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


def is_mark(mark: StatementMark) -> bool:
    """Whether a statement is a point: a number at one place."""
    return (
        mark.low is not None
        and mark.low == mark.high
        and mark.x_low is not None
        and mark.x_low == mark.x_high
    )


def draw_statement(axes: Axes, plot: Plot, figure: Figure, looks: Mapping[str, Look]) -> None:
    """Draw all statements of a panel that have numbers; equal labels are written once."""
    written: set[str] = set()
    marks = [(mark.x_low, figure.label(mark.statement.series)) for mark in plot.statements if is_mark(mark)]
    for mark in plot.statements:
        words = "" if mark.statement.label in written else mark.statement.label
        written.add(words)
        if is_mark(mark):
            name = figure.label(mark.statement.series)
            here = [label for x, label in marks if x == mark.x_low]
            shift = aside(name, here) if plot.panel.aside else 1.0
            _mark(axes, mark, shift, looks[name], words)
        elif mark.quantity == "scaling_ends":
            _end(axes, mark, words)
        elif mark.quantity == "linear":
            _linear(axes, mark, plot, figure, words)
        else:
            _range(axes, mark, words)


def _mark(axes: Axes, mark: StatementMark, shift: float, look: Look, words: str) -> None:
    x, y = (mark.x_low or 0) * shift, mark.high or 0
    axes.plot([x], [y], **line_style(look, joined=False), **marker_style(look, PUBLISHED), zorder=3)
    _beside(axes, words, x, y)


def _end(axes: Axes, mark: StatementMark, words: str) -> None:
    """Draw the end of efficient scaling as a band over the full height."""
    low, high = mark.x_low or 0, mark.x_high or 0
    axes.axvspan(low, high, **_BAND)
    place: dict[str, Any] = {
        "xycoords": ("data", "axes fraction"),
        "xytext": (4, 0),
        "ha": "left",
        "va": "bottom",
    }
    axes.annotate(words.replace(": ", ":\n"), (high, 0.05), **place, **_WORDS)


def _linear(axes: Axes, mark: StatementMark, plot: Plot, figure: Figure, words: str) -> None:
    """Draw linear scaling as a thick line along the ideal one, over the stated range."""
    ends = [mark.x_low or 0, mark.x_high or 0]
    whole = 1 / factor(plot.panel.layout, plot.panel.y_unit)
    heights = [end / figure.base_x for end in ends] if plot.panel.layout == "speed_up" else [whole, whole]
    axes.plot(ends, heights, **_THICK)
    _beside(axes, words, ends[1], heights[1], down=4, up=7)


def _range(axes: Axes, mark: StatementMark, words: str) -> None:
    """Draw a statement over its range of x, by default the whole axis; an open end is an arrow."""
    ends = axes.get_xlim()
    low_x, high_x = mark.x_low or ends[0], mark.x_high or ends[1]
    if mark.low is None or mark.high is None:
        edge = (mark.high if mark.low is None else mark.low) or 0
        style: dict[str, Any] = {
            "marker": "v" if mark.low is None else "^",
            "color": RIM,
            "markersize": 4,
            "linestyle": "",
        }
        axes.plot([low_x], [edge], **style, zorder=3)
        _beside(axes, words, low_x, edge)
    elif low_x == high_x:
        axes.plot([low_x, low_x], [mark.low, mark.high], **_THICK | {"linewidth": 5, "color": "#8c8c8c"})
        _beside(axes, words, low_x, (mark.low + mark.high) / 2)
    elif mark.low == mark.high:
        axes.plot([low_x, high_x], [mark.low, mark.low], **_THICK)
        # An efficiency has the ideal line above it; others have room there.
        _beside(axes, words, low_x, mark.low, down=8 if mark.quantity == "efficiency" else -8)
    else:
        axes.fill_between([low_x, high_x], mark.low, mark.high, **_BAND)
        _beside(axes, words, low_x, mark.high, down=-6)


def _beside(axes: Axes, words: str, x: float, y: float, *, down: float = 0, up: float | None = None) -> None:
    """Write words next to a place, on the side with room: right and `down` points below, or left and `up` above."""
    if not words:
        return
    low, high = axes.get_xlim()
    middle = (low * high) ** 0.5 if axes.get_xscale() == "log" else (low + high) / 2
    right = x <= middle
    shift = -down if right or up is None else up
    style = {"ha": "left" if right else "right", "va": "center", **_WORDS}
    axes.annotate(words, (x, y), xytext=(6 if right else -6, shift), **style)


NOT_PUBLISHED = "curve not published in text"
SIMULATED = "simulated"
DOTTED = (0, (1, 1.2))
_PREDICTED_ALPHA = 0.18
_BARS: dict[str, Any] = {"ecolor": RIM, "elinewidth": 0.7, "capsize": 1.8, "barsabove": True}


def panel_looks(figure: Figure, plots: Sequence[Plot]) -> dict[str, Look]:
    """Looks by name in the legend: our series have their backend's, published ones the remaining looks."""
    curves = [
        Curve(name=point.name, backend=point.row.cell.backend, evidence=str(point.row.evidence), rows=())
        for plot in plots
        for point in plot.ours
    ]
    curves += [
        Curve(name=curve.label, backend=curve.backend, evidence=SIMULATED, rows=())
        for plot in plots
        for curve in plot.simulated
    ]
    if figure.named_points:
        names = [PUBLISHED]
    else:
        names = [mark.label for plot in plots for mark in plot.marks]
        names += [
            figure.label(mark.statement.series) for plot in plots for mark in plot.statements if is_mark(mark)
        ]
    curves += [Curve(name=name, backend=f"published {name}", evidence=PUBLISHED, rows=()) for name in names]
    return looks_of(curves)


def draw_panel(axes: Axes, plot: Plot, figure: Figure, looks: Mapping[str, Look]) -> None:
    """Draw everything inside the axes, whose limits are already set."""
    ends = axes.get_xlim()
    for heights in ideal_lines(plot, figure, ends):
        axes.plot(ends, heights, **IDEAL, scalex=False, scaley=False)
    if plot.panel.layout == "relative_throughput":
        axes.axhline(1.0, **REFERENCE)
    draw_statement(axes, plot, figure, looks)
    _draw_simulated(axes, plot, looks)
    if figure.named_points:
        _draw_named(axes, plot, looks[PUBLISHED])
    else:
        _draw_series(axes, plot, looks)
    _draw_ours(axes, plot, looks)
    if plot.empty:
        axes.text(0.5, 0.5, NOT_PUBLISHED, transform=axes.transAxes, color="#555555", style="italic",
                  ha="center", va="center", bbox={"facecolor": "white", "edgecolor": "none"})  # fmt: skip


def _draw_simulated(axes: Axes, plot: Plot, looks: Mapping[str, Look]) -> None:
    """Draw each predicted curve with its band behind it, dotted where the published line has the same look.

    Markers of several curves stand beside each other, as ours do; lines and bands are where they are.
    """
    published = {marks[0].label for marks in plot.series.values() if plot.joined(marks)}
    for index, curve in enumerate(plot.simulated):
        look, places = looks[curve.label], [point.x for point in curve.points]
        shift = dodge(index, len(plot.simulated)) if axes.get_xscale() == "log" else 1.0
        low, center, high = (
            [plot.shown(getattr(point, end)) for point in curve.points] for end in ("low", "center", "high")
        )
        axes.fill_between(
            places, low, high, color=look.color, alpha=_PREDICTED_ALPHA, linewidth=0, zorder=1.1
        )
        joined = len(places) > 1
        dotted = {"linestyle": DOTTED} if joined and curve.label in published else {}
        axes.plot(places, center, zorder=2, **line_style(look, joined=joined) | dotted)
        axes.plot(
            [x * shift for x in places],
            center,
            zorder=2.1,
            **line_style(look, joined=False),
            **marker_style(look, SIMULATED),
        )


def _draw_series(axes: Axes, plot: Plot, looks: Mapping[str, Look]) -> None:
    for marks in plot.series.values():
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
    return (mark.x or 0) * (aside(mark.label, here) if plot.panel.aside else 1.0)


def _draw_named(axes: Axes, plot: Plot, look: Look) -> None:
    """Draw each point with the name of its work next to it, on a side without another point."""
    log = plot.panel.y_scale == "log"
    marks = [(mark.x, mark) for mark in plot.marks if mark.x is not None]
    for x, mark in marks:
        axes.plot([x], [mark.y], **line_style(look, joined=False), **marker_style(look, PUBLISHED))
        near = [
            (place, neighbour)
            for place, neighbour in marks
            if neighbour is not mark and _close(mark, neighbour, log=log)
        ]
        left = any(x < place < 8 * x for place, _ in near)
        pair = [neighbour for place, neighbour in near if place == x]
        axes.annotate(
            mark.value.series.replace(" et al.", ""),
            (x, mark.y),
            xytext=(-5 if left else 5, 0 if not pair else 3.5 if mark.y > pair[0].y else -3.5),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=SMALL,
        )


def _close(mark: Mark, neighbour: Mark, *, log: bool) -> bool:
    """Whether the labels of two marks would overlap vertically."""
    return max(mark.y, neighbour.y) < 1.6 * min(mark.y, neighbour.y) if log else abs(mark.y - neighbour.y) < 8


def _draw_ours(axes: Axes, plot: Plot, looks: Mapping[str, Look]) -> None:
    """Draw our points as markers without lines."""
    names = list(dict.fromkeys(point.name for point in plot.ours))
    for point in plot.ours:
        look, index = looks[point.name], names.index(point.name)
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


_OCTAVE_MARGIN = 0.45
_CLOSE = 1.45  # tick labels closer than this factor overlap


def x_axis(axes: Axes, figure: Figure, plots: Sequence[Plot]) -> None:
    """Set the x axis: the catalogue's range, extended to our points, with plain numbers."""
    places = [place for plot in plots for place in plot.places]
    low, high = min((figure.x_range[0], *places)), max((figure.x_range[1], *places))
    known = not all(plot.empty for plot in plots)
    if figure.x_scale == "linear":
        margin = 0.06 * (high - low)
        axes.set_xlim(low - margin, high + margin)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True) if known else NullLocator())
    else:
        axes.set_xscale("log", base=2 if figure.x_scale == "log2" else 10)
        margin = _OCTAVE_MARGIN * (1.4 if any(plot.panel.aside for plot in plots) else 1)
        axes.set_xlim(low * 2**-margin, high * 2**margin)
        axes.xaxis.set_minor_locator(NullLocator())
        marks = {mark.x for plot in plots for mark in plot.marks if mark.x is not None}
        if figure.x_scale == "log2":
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
    extra = [
        place
        for place in (*sorted(places), high)
        if all(max(place / tick, tick / place) > _CLOSE for tick in ticks)
    ]
    return sorted({*ticks, *extra})


def y_axis(axes: Axes, plot: Plot, figure: Figure, alike: Sequence[Plot]) -> None:
    """Set the y axis: efficiency from 0, others around the known values; without any it has no ticks.

    `alike` are the plots of the same quantity, including this one; they share a scale.
    """
    panel, heights = plot.panel, [height for peer in alike for height in peer.heights]
    highest_x = max((figure.x_range[1], *(place for peer in alike for place in peer.places)))
    if panel.layout == "efficiency":
        whole = 1 / factor(panel.layout, panel.y_unit)
        axes.set_ylim(0, max(1.12 * whole, 1.06 * max(heights, default=0)))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    elif panel.layout == "speed_up":
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
    places = [(mark.x_high, mark.high) for mark in plot.statements]
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
    layout = plot.panel.layout
    if layout == "efficiency":
        whole = 1 / factor(layout, plot.panel.y_unit)
        return [(whole, whole)]
    if layout == "speed_up":
        return [(low / figure.base_x, high / figure.base_x)]
    return [(y * low / x, y * high / x) for x, y in _starts(plot)] if layout == "throughput" else []


def _starts(plot: Plot) -> list[tuple[float, float]]:
    """Starting points: the first point of each published series or, without any, values stated for one device."""
    starts = [(marks[0].x, marks[0].y) for marks in plot.series.values() if marks[0].x is not None]
    if not starts:
        anchors = [mark for mark in plot.statements if mark.x_low == mark.x_high == 1]
        starts = [
            (1.0, end)
            for anchor in anchors
            for end in dict.fromkeys((anchor.low, anchor.high))
            if end is not None
        ]
    if not starts:
        starts = [(curve.points[0].x, plot.shown(curve.points[0].center)) for curve in plot.simulated[:1]]
    return starts
