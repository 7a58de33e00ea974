"""Communication only, on the page: sentences, plots of bus bandwidth over bucket size, and a table."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from dlscale.analysis.declare import Axis, Block, Plot, Point, Sentence, Series, Tags, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.findings.communication import (
    BUCKETS,
    GIGA,
    STEPS,
    Communication,
    buckets,
    communication_sentence,
    communications_on_most_ranks,
)
from dlscale.analysis.findings.communication_only import BucketSize
from dlscale.analysis.text import (
    backend_name,
    interval_note,
    plural,
    rate,
    size_text,
    training_title,
    workload_title,
)

LEAD = (
    "One bucket of the training's after the other, while nobody computes: what a perfect overlap would hide."
)
MAX_TICKS = 6


def exchange_blocks(communications: Sequence[Communication], names: Collection[str]) -> Iterator[Block]:
    """Sentences and a plot per family for its largest number of ranks, then tables of all numbers.

    `names` are the curves that have a look on the page.
    """
    largest = communications_on_most_ranks(communications)
    for communication in largest:
        name = f"{workload_title(communication.cell.workload)} ({communication.cell.framework})"
        yield Sentence(
            text=f"{name}: {communication_sentence(communication)}", tags=tags_of(communication.cell)
        )
    drawn = [communication for communication in largest if backend_name(communication.cell) in names]
    for index, (family, group) in enumerate(groupby(drawn, key=lambda communication: communication.family)):
        yield _plot(f"busbw-{index}", family, list(group))
    if communications:
        yield STEPS.of(communications)
        yield BUCKETS.of(buckets(communications))


def _plot(name: str, family: Family, shown: Sequence[Communication]) -> Plot:
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


def _size_axis(sizes: Sequence[int]) -> Axis:
    """An axis of at least two octaves, with at most MAX_TICKS ticks at powers of two."""
    low, high = math.log2(min(sizes)) - 0.5, math.log2(max(sizes)) + 0.5
    low, high = (low - 0.5, high + 0.5) if high - low < 2 else (low, high)
    powers = range(math.ceil(low), math.floor(high) + 1)
    apart = max(1, math.ceil(len(powers) / MAX_TICKS))
    ticks = tuple((2.0**power, size_text(2**power)) for power in powers[::apart])
    return Axis(title="size of a bucket", kind="log", ticks=ticks, low=2.0**low, high=2.0**high)
