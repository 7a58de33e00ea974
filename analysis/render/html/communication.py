"""Communication only, on the page: sentences, bus bandwidth over bucket sizes, and a row of numbers per size."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from dlscale.analysis.families import Family
from dlscale.analysis.findings.communication import (
    COMMUNICATION_LEGEND,
    GIGA,
    Communication,
    communication_rows,
    communication_sentence,
    communications_on_most_ranks,
)
from dlscale.analysis.findings.communication_only import BucketSize
from dlscale.analysis.render.html.labels import interval_note, plural, tags_of, training_title, workload_title
from dlscale.analysis.render.html.model import (
    Axis,
    Block,
    Column,
    Plot,
    Point,
    Row,
    Sentence,
    Series,
    Table,
    Tags,
    Value,
)
from dlscale.analysis.render.html.tables import (
    TRAINING,
    flat,
    label,
    of_interval,
    of_number,
    training,
    trimmed,
)
from dlscale.analysis.render.text import backend_name, percent, rate, size_text

LEAD = (
    "One bucket of the training's after the other, while nobody computes: what a perfect overlap would hide."
)
MAX_TICKS = 6


def exchange_blocks(found: Sequence[Communication], names: Collection[str]) -> Iterator[Block]:
    """Of each family the sentences and a plot of what was measured on its most ranks, then all numbers.

    `names` are those that the page has a look for.
    """
    largest = communications_on_most_ranks(found)
    for one in largest:
        name = f"{workload_title(one.cell.workload)} ({one.cell.framework})"
        yield Sentence(text=f"{name}: {communication_sentence(one)}", tags=tags_of(one.cell))
    drawn = [one for one in largest if backend_name(one.cell) in names]
    for index, (family, group) in enumerate(groupby(drawn, key=lambda one: one.family)):
        yield _plot(f"busbw-{index}", family, list(group))
    if found:
        yield exchange_table(found)


def _plot(name: str, family: Family, shown: Sequence[Communication]) -> Plot:
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


def _series(one: Communication) -> Series:
    return Series(
        name=backend_name(one.cell),
        look=backend_name(one.cell),
        evidence=one.evidence,
        points=tuple(_point(one, size) for size in one.alone.sizes),
        tags=tags_of(one.cell),
        joined=len(one.alone.sizes) > 1,
    )


def _point(one: Communication, size: BucketSize) -> Point:
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
            interval_note(size.seconds, "launch"),
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


COLUMNS = (
    *TRAINING,
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    Column(label="bucket"),
    Column(label="per step"),
    Column(label="time", unit="ms"),
    Column(label="busbw", unit="GB/s"),
    Column(label="whole step's", unit="ms"),
    Column(label="hidden"),
    Column(label="step / sum"),
)


def exchange_table(found: Iterable[Communication]) -> Table:
    """One row per exchange and size of bucket; the whole step's numbers stand in each of its rows."""
    rows = []
    for one in found:
        rows += [
            _row(one, size, data)
            for size, data in zip(one.alone.sizes, communication_rows([one]), strict=True)
        ]
    table = Table(
        name="exchanges",
        caption="The exchange by itself",
        columns=COLUMNS,
        rows=tuple(rows),
        legend=COMMUNICATION_LEGEND,
    )
    return trimmed(table)


def _row(one: Communication, size: BucketSize, data: dict[str, object]) -> Row:
    step = one.step
    return Row(
        values=(
            *training(one.family),
            label(one.cell, one.evidence),
            of_number(one.cell.num_ranks),
            Value(text=size_text(size.num_bytes), order=size.num_bytes),
            of_number(size.count),
            of_interval(size.seconds.times(1e3), rate),
            of_interval(size.busbw.times(GIGA), rate),
            of_interval(one.alone.seconds.times(1e3), rate),
            of_interval(one.overlap.hidden, percent),
            of_interval(step.of_sum if step else None, rate),
        ),
        data=flat(data),
        tags=tags_of(one.cell),
    )
