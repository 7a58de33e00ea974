"""The scales of a plot: where an axis ends, which ticks it has, and which of their labels have room."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf, log

from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    PercentFormatter,
)

from dlscale.analysis.figures.drawing import CHARACTER_INCHES, MOST_TICKS, inches_wide
from dlscale.analysis.plots import Axis
from dlscale.analysis.text import number

_WIDE = 12  # a logarithmic axis that spans less has round steps
_DECADES = 1000  # and one that spans more has ticks at powers of 10 alone
AXIS_INCHES = 0.45  # for the numbers beside an axis


def scale_x(axes: Axes, axis: Axis) -> None:
    """Title, ends and ticks of the axis along."""
    axes.set_xlabel(axis.title)
    if axis.kind == "log":
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
    if axis.low is not None and axis.high is not None:
        axes.set_xlim(axis.low, axis.high)
    if not axis.numbers:
        axes.xaxis.set_major_locator(NullLocator())
    elif axis.ticks:
        _ticks(axes.xaxis, axis, places_apart(axes, axis, axis.ticks))
    elif axis.kind == "log":
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _ticks(drawn: XAxis | YAxis, axis: Axis, kept: Collection[float] | None = None) -> None:
    ticks = [tick for tick in axis.ticks if kept is None or tick[0] in kept]
    ticks = ticks[:: -(-len(ticks) // MOST_TICKS)]
    drawn.set_major_locator(FixedLocator([place for place, _ in ticks]))
    drawn.set_major_formatter(FixedFormatter([label for _, label in ticks]))


def places_apart(axes: Axes, axis: Axis, texts: Sequence[tuple[float, str]]) -> list[float]:
    """The places along x whose texts do not run into that of the place kept before; all where ends are not known."""
    if axis.low is None or axis.high is None or axis.high <= axis.low:
        return [place for place, _ in texts]
    scale = log if axis.kind == "log" else float
    grid = axes.get_gridspec()
    wide = inches_wide(axes) / (grid.ncols if grid else 1) - AXIS_INCHES
    inches = wide / (scale(axis.high) - scale(axis.low))
    least = wide / MOST_TICKS if len(texts) > MOST_TICKS else 0.0
    kept: list[float] = []
    before, end = -inf, -inf
    for place, text in sorted(texts):
        middle = inches * scale(place)
        half = CHARACTER_INCHES * (max(map(len, text.split("\n"))) + 1) / 2
        if middle - half >= end and middle - before >= least:
            kept.append(place)
            before, end = middle, middle + half
    return kept


def scale_y(axes: Axes, axis: Axis) -> None:
    """Title, ends and ticks of the axis upwards; behind what is drawn, which decides ends that are not given."""
    axes.set_ylabel(axis.title)
    if axis.kind == "names":
        axes.set_ylim(len(axis.ticks) - 0.5, -0.5)
        axes.set_yticks([place for place, _ in axis.ticks], [label for _, label in axis.ticks], fontsize=6)
        return
    if axis.kind == "log":
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(axis.low, axis.high)
    if not axis.numbers:
        axes.yaxis.set_major_locator(NullLocator())
        return
    if axis.ticks:
        _ticks(axes.yaxis, axis)
        return
    if axis.kind == "log" and axis.low and axis.high and axis.high / axis.low > _WIDE:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if axis.high / axis.low < _DECADES else (1,)))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if axis.kind == "percent":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    elif axis.kind == "log":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
