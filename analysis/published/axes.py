"""The axes of a published figure: their range, ticks and labels, whether or not there is anything to put on them."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dlscale.analysis.published.catalogue import Figure
from dlscale.analysis.published.marks import Plot
from dlscale.analysis.published.units import factor
from dlscale.analysis.words import number

_OCTAVE_MARGIN = 0.45
_CLOSE = 1.45  # labels of places nearer than this factor lie on each other


def x_axis(axes: Axes, figure: Figure, plots: Sequence[Plot]) -> None:
    """From the catalogue's range, widened by points of ours beyond it; plain numbers."""
    places = [point.x for plot in plots for point in plot.ours]
    low, high = min((figure.x_range[0], *places)), max((figure.x_range[1], *places))
    known = any(plot.marks or plot.said or plot.ours for plot in plots)
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
            axes.xaxis.set_major_locator(FixedLocator(_octaves(low, high, {*marks, *places})))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    unit = "" if figure.x_unit in figure.x_label else f" [{figure.x_unit}]"
    axes.set_xlabel(figure.x_label + unit)


def _octaves(low: float, high: float, places: set[float]) -> list[float]:
    """Doublings of the lowest value, and places that are none of them where they do not crowd these."""
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
        if all(max(place / one, one / place) > _CLOSE for one in ticks)
    ]
    return sorted({*ticks, *extra})


def y_axis(axes: Axes, plot: Plot, figure: Figure, alike: Sequence[Plot]) -> None:
    """Efficiency from 0, others around what is known; without a number on it the axis has no ticks either.

    `alike` are the plots of the same quantity, this one among them: they have one scale.
    """
    panel, heights = plot.panel, [height for one in alike for height in one.heights]
    highest_x = max((figure.x_range[1], *(point.x for one in alike for point in one.ours)))
    if panel.layout == "efficiency":
        whole = 1 / factor(panel.layout, panel.y_unit)
        axes.set_ylim(0, max(1.12 * whole, 1.06 * max(heights, default=0)))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    elif panel.layout == "speed_up":
        _scale(axes, plot, min([1.0, *heights]), max([highest_x / figure.base_x, *heights]))
    elif heights:
        heights += _reach(plot, figure)
        _scale(axes, plot, min(heights), max(heights))
    else:
        axes.set_yscale(panel.y_scale)
        axes.set_ylim((1, 100) if panel.y_scale == "log" else (0, 1))
        axes.yaxis.set_major_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel(f"{panel.y_label} [{panel.y_unit}]")


def _reach(plot: Plot, figure: Figure) -> list[float]:
    """Heights that a curve not published would pass, so that there is room for one of ours."""
    if plot.panel.layout == "relative_throughput":
        return [1.0]
    if plot.in_full or plot.panel.layout != "throughput":
        return []
    places = [(one.x_high, one.high) for one in plot.said]
    return [y * end / x for x, y in places if x and y for end in figure.x_range]


def _scale(axes: Axes, plot: Plot, low: float, high: float) -> None:
    axes.yaxis.set_minor_locator(NullLocator())
    if plot.panel.y_scale == "linear":
        # From 0 unless what is shown is a small change of something large.
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
    """Of perfect scaling: y at both ends of the x axis, a line per place that a curve starts from."""
    low, high = ends
    layout = plot.panel.layout
    if layout == "efficiency":
        whole = 1 / factor(layout, plot.panel.y_unit)
        return [(whole, whole)]
    if layout == "speed_up":
        return [(low / figure.base_x, high / figure.base_x)]
    return [(y * low / x, y * high / x) for x, y in _starts(plot)] if layout == "throughput" else []


def _starts(plot: Plot) -> list[tuple[float, float]]:
    """Where each curve begins: of every published series its first point, else the ends of an anchor on one device."""
    found = [(marks[0].x, marks[0].y) for marks in plot.series.values() if marks[0].x is not None]
    if not found:
        anchors = [one for one in plot.said if one.x_low == one.x_high == 1]
        found = [
            (1.0, end) for one in anchors for end in dict.fromkeys((one.low, one.high)) if end is not None
        ]
    return found
