"""Bus bandwidth over the size of a bucket as plots: on the most ranks for the page, over ranks in a figure of files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dlscale.analysis.curves import limits
from dlscale.analysis.declare import Tags, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.findings.communication_only import BucketSize
from dlscale.analysis.findings.overlap import Communication
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.findings.small_print import bars_text, family_figure, span
from dlscale.analysis.plots import Axis, Bars, Figure, Plot, Point, Series
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.text import backend_name, interval_note, plural, rate, size_text, training_title

GIGA = 1e-9
MEGA = 1e-6
MAX_TICKS = 6  # of an axis of sizes


def busbw_plot(name: str, family: Family, shown: Sequence[Communication]) -> Plot:
    """The bus bandwidth of each backend on one number of ranks; `shown` is not empty."""
    each = []
    for communication in shown:
        at_largest = communication.alone.sizes[-1].busbw.times(GIGA).center
        each.append(f"{backend_name(communication.cell)} up to {at_largest:.3g}")
    speeds = [size.busbw for communication in shown for size in communication.alone.sizes]
    top = max(speed.center if speed.high is None else speed.high for speed in speeds)
    return Plot(
        name=name,
        title=training_title(family),
        says=f"busbw in GB/s at the largest bucket: {', '.join(each)}.",
        x=_size_axis([size.num_bytes for communication in shown for size in communication.alone.sizes]),
        y=Axis(title="busbw [GB/s]", low=0, high=1.1 * GIGA * top),
        series=tuple(_series(communication) for communication in shown),
        table="exchanges",
        tags=Tags(workload=family.workload, framework=family.framework),
    )


def _series(communication: Communication) -> Series:
    return Series(
        name=backend_name(communication.cell),
        look=backend_name(communication.cell),
        evidence=communication.evidence,
        points=tuple(_point(communication, size) for size in communication.alone.sizes),
        tags=tags_of(communication.cell),
        joined=len(communication.alone.sizes) > 1,
    )


def _point(communication: Communication, size: BucketSize) -> Point:
    busbw = size.busbw.times(GIGA)
    return Point(
        x=float(size.num_bytes),
        y=busbw.center,
        low=busbw.low,
        high=busbw.high,
        lines=(
            f"{backend_name(communication.cell)}, {plural(communication.cell.num_ranks, 'rank')}",
            f"{size_text(size.num_bytes)}, {size.count} of them in a step",
            f"{rate(busbw)} GB/s (busbw)",
            f"{rate(size.seconds.times(1e3))} ms",
            interval_note(size.seconds, "launch"),
        ),
    )


def _size_axis(sizes: Sequence[float], *, beyond: float = 0.5) -> Axis:
    """An axis of at least two octaves, with at most MAX_TICKS ticks at powers of two; `beyond` is in octaves."""
    low, high = math.log2(min(sizes)) - beyond, math.log2(max(sizes)) + beyond
    low, high = (low - 0.5, high + 0.5) if high - low < 2 else (low, high)
    powers = range(math.ceil(low), math.floor(high) + 1)
    apart = max(1, math.ceil(len(powers) / MAX_TICKS))
    ticks = tuple((2.0**power, size_text(2**power)) for power in powers[::apart])
    return Axis(title="size of a bucket", kind="log", ticks=ticks, low=2.0**low, high=2.0**high)


MOST_PANELS = 3
_BAR = 0.022  # of the axis, for each backend
_LOG_ABOVE = 4  # ratio of the fastest to the slowest
_MARGIN = 0.07  # of the axis of sizes, on both sides
_LEAST_OCTAVES = 2.0
Panel = tuple[int, int]  # ranks, nodes


def busbw_figure(
    rows: Sequence[ScalingRow], own: Sequence[Communication], provenance: Provenance
) -> tuple[Figure, list[Communication]]:
    """The figure of a family, a panel per number of ranks, and what it shows; `own` is not empty.

    Behind the points stand the bytes that a step sends in each size. At most the three largest numbers of ranks are
    shown; the small print names the others.
    """
    family = own[0].family
    every = sorted(set(map(_panel, own)))
    panels, left_out = every[-MOST_PANELS:], every[:-MOST_PANELS]
    shown = [exchange for exchange in own if _panel(exchange) in panels]
    names = list(dict.fromkeys(backend_name(exchange.cell) for exchange in shown))
    low, high = _octaves(shown)
    width = 2 ** (_BAR * (high - low))
    asides = {name: width ** (place - (len(names) - 1) / 2) for place, name in enumerate(names)}
    x = replace(_size_axis([2**low, 2**high], beyond=0.0), low=2**low, high=2**high)
    x = replace(x, ticks=tuple((place, label.replace(" ", "\n")) for place, label in x.ticks))
    plots = []
    for panel in panels:
        members = [exchange for exchange in shown if _panel(exchange) == panel]
        plot = busbw_plot("busbw", family, members)
        plots.append(
            replace(
                plot,
                title=_named(panel) if len(every) > 1 else "",
                x=x,
                y=_speed_axis(shown),
                bars=Bars(
                    title="bars: per step [MB]",
                    label="bytes per step",
                    high=1.8 * MEGA * max(size.step_bytes for one in shown for size in one.alone.sizes),
                    width=width,
                    asides=asides,
                    heights={
                        backend_name(one.cell): tuple(
                            (float(size.num_bytes), size.step_bytes * MEGA) for size in one.alone.sizes
                        )
                        for one in members
                    },
                ),
            )
        )
    figure = family_figure(
        family,
        rows,
        [exchange.cell for exchange in shown],
        provenance,
        name="busbw",
        brief="busbw of the training's buckets, exchanged without computation; shaded: bytes per step.",
        subtitle="; ".join([*([] if len(every) > 1 else [_named(panels[0])]), family.constants]),
        words=_words(shown, left_out),
        panels=tuple(plots),
        lines=(),
        wide=len(every) > 1,
        shared=True,
    )
    return figure, shown


def _words(shown: Sequence[Communication], left_out: Sequence[Panel]) -> Iterator[str]:
    times = [size.seconds for exchange in shown for size in exchange.alone.sizes]
    yield (
        "busbw: bytes of a bucket over the seconds of its exchange, x 2 (P - 1) / P on P ranks; one bucket after the "
        "other without any computation, at the sizes of the training's own buckets. The slowest rank's mean, median "
        f"over n = {span([interval.n for interval in times])} launches;"
    )
    yield bars_text(times, "whiskers")
    yield "Bars: bytes of a step that travel in buckets of that size."
    yield from dict.fromkeys(f"{note[0].upper()}{note[1:]}." for one in shown for note in one.alone.notes)
    if left_out:
        yield f"Not shown: {', '.join(map(_named, left_out))} (see --json)."


def _panel(exchange: Communication) -> Panel:
    return exchange.cell.num_ranks, exchange.cell.num_nodes


def _named(panel: Panel) -> str:
    num_ranks, num_nodes = panel
    return f"{num_ranks} ranks" + (f" on {num_nodes} nodes" if num_nodes > 1 else "")


def _octaves(shown: Sequence[Communication]) -> tuple[float, float]:
    """Base-2 logarithms of the sizes at the ends of the axis."""
    sizes = [math.log2(size.num_bytes) for exchange in shown for size in exchange.alone.sizes]
    middle, half = (min(sizes) + max(sizes)) / 2, max(_LEAST_OCTAVES, max(sizes) - min(sizes)) / 2
    return middle - half * (1 + 2 * _MARGIN), middle + half * (1 + 2 * _MARGIN)


def _speed_axis(shown: Sequence[Communication]) -> Axis:
    """From 0, or logarithmic if the speeds span a large ratio."""
    low, high = limits([size.busbw.times(GIGA) for exchange in shown for size in exchange.alone.sizes])
    if high / low > _LOG_ABOVE:
        return Axis(title="busbw [GB/s]", kind="log", low=low / 1.3, high=high * 1.3)
    return Axis(title="busbw [GB/s]", low=0, high=1.12 * high)
