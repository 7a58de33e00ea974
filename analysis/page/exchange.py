"""The exchange by itself on the page: sentences, busbw over the sizes of buckets, and the numbers behind."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from dlscale.analysis.collectives.words import size as size_text
from dlscale.analysis.exchange.alone import Size
from dlscale.analysis.exchange.exchanges import Exchange, on_most_ranks
from dlscale.analysis.exchange.words import GIGA, sentence
from dlscale.analysis.family import Family
from dlscale.analysis.page.model import Block, Text
from dlscale.analysis.page.plot_model import Axis, Plot, Point, Series, Tags
from dlscale.analysis.page.series import tags_of
from dlscale.analysis.page.tables.exchange import exchange_table
from dlscale.analysis.page.words import how, plural, training_title, workload_title
from dlscale.analysis.words import backend_name, rate

LEAD = (
    "One bucket of the training's after the other, while nobody computes: what a perfect overlap would hide."
)
MAX_TICKS = 6


def exchange_blocks(found: Sequence[Exchange], names: Collection[str]) -> Iterator[Block]:
    """Of each family the sentences and a plot of what was measured on its most ranks, then all numbers.

    `names` are those that the page has a look for.
    """
    largest = on_most_ranks(found)
    for one in largest:
        name = f"{workload_title(one.cell.workload)} ({one.cell.framework})"
        yield Text(text=f"{name}: {sentence(one)}", tags=tags_of(one.cell))
    drawn = [one for one in largest if backend_name(one.cell) in names]
    for index, (family, group) in enumerate(groupby(drawn, key=lambda one: one.family)):
        yield _plot(f"busbw-{index}", family, list(group))
    if found:
        yield exchange_table(found)


def _plot(name: str, family: Family, shown: Sequence[Exchange]) -> Plot:
    each = [
        f"{backend_name(one.cell)} up to {one.alone.sizes[-1].busbw.times(GIGA).center:.3g}" for one in shown
    ]
    speeds = [size.busbw for one in shown for size in one.alone.sizes]
    top = max(one.center if one.high is None else one.high for one in speeds)
    return Plot(
        name=name,
        title=training_title(family),
        says=f"busbw in GB/s at the largest bucket: {', '.join(each)}.",
        x=_size_axis([size.num_bytes for one in shown for size in one.alone.sizes]),
        y=Axis(title="busbw [GB/s]", low=0, high=1.1 * GIGA * top),
        series=tuple(_series(one) for one in shown),
        table="exchanges",
        tags=Tags(workload=family.workload, framework=family.framework),
    )


def _series(one: Exchange) -> Series:
    return Series(
        name=backend_name(one.cell),
        look=backend_name(one.cell),
        evidence=one.evidence,
        points=tuple(_point(one, size) for size in one.alone.sizes),
        tags=tags_of(one.cell),
        joined=len(one.alone.sizes) > 1,
    )


def _point(one: Exchange, size: Size) -> Point:
    busbw = size.busbw.times(GIGA)
    return Point(
        x=float(size.num_bytes),
        y=busbw.center,
        low=busbw.low,
        high=busbw.high,
        lines=(
            f"{backend_name(one.cell)}, {plural(one.cell.num_ranks, 'rank')}",
            f"{size_text(size.num_bytes)}, {size.count} of them in a step",
            f"{rate(busbw)} GB/s (busbw)",
            f"{rate(size.seconds.times(1e3))} ms",
            how(size.seconds, "launch"),
        ),
    )


def _size_axis(sizes: Sequence[int]) -> Axis:
    """Powers of two, not more than can be read; at least two octaves."""
    low, high = math.log2(min(sizes)) - 0.5, math.log2(max(sizes)) + 0.5
    low, high = (low - 0.5, high + 0.5) if high - low < 2 else (low, high)
    powers = range(math.ceil(low), math.floor(high) + 1)
    apart = max(1, math.ceil(len(powers) / MAX_TICKS))
    ticks = tuple((2.0**power, size_text(2**power)) for power in powers[::apart])
    return Axis(title="size of a bucket", kind="log", ticks=ticks, low=2.0**low, high=2.0**high)
