"""The axes of the figure of busbw: sizes of buckets in powers of 2, and GB/s."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log2

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dlscale.analysis.collectives.words import size as size_text
from dlscale.analysis.exchange.exchanges import Exchange
from dlscale.analysis.figures.draw import limits
from dlscale.analysis.statistics import Interval
from dlscale.analysis.words import number

_WIDE = 4  # fastest over slowest from which on the axis is logarithmic
_MARGIN = 0.07  # of the axis, on both sides
_LEAST_OCTAVES = 2.0
_MOST_TICKS = 6


def octaves(shown: Sequence[Exchange]) -> tuple[float, float]:
    """Logarithms of the sizes at the ends of the axis."""
    sizes = [log2(size.num_bytes) for one in shown for size in one.alone.sizes]
    middle, half = (min(sizes) + max(sizes)) / 2, max(_LEAST_OCTAVES, max(sizes) - min(sizes)) / 2
    return middle - half * (1 + 2 * _MARGIN), middle + half * (1 + 2 * _MARGIN)


def size_axis(axes: Axes, low: float, high: float) -> None:
    """Powers of 2 that are so far apart that they can be read."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(2**low, 2**high)
    first, last = -floor(-low), floor(high)
    apart = max(1, -(-(last - first + 1) // _MOST_TICKS))
    axes.xaxis.set_major_locator(FixedLocator([2.0**power for power in range(first, last + 1, apart)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(round(value)).replace(" ", "\n")))


def speed_axis(axes: Axes, speeds: Sequence[Interval]) -> None:
    """From 0, or logarithmic where the fastest is far from the slowest."""
    low, high = limits(speeds)
    if high / low > _WIDE:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.3, high * 1.3)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, 1.12 * high)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.set_ylabel("busbw [GB/s]")
