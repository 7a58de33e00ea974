"""What a backend's exchange takes by itself: of a whole step, and of each size of bucket.

Control `exchange` averages one bucket of the training's after the other while nobody computes. Of a launch that is the
median over its windows of the slowest rank's mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.family import Family, family_of
from dlscale.analysis.frame import steady_windows, world_step_seconds
from dlscale.analysis.statistics import Interval, median_interval
from dlscale.analysis.waterfall.times import Block, latest_good
from dlscale.benchmarks.record import Cell, Record

CONTROL = "exchange"


def bus_factor(num_ranks: int) -> float:
    """Of busbw over algbw: what each rank must send and receive at least, per byte (nccl-tests, PERFORMANCE.md)."""
    return 2 * (num_ranks - 1) / num_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The buckets of one size."""

    num_bytes: int  # of one
    count: int  # in a step
    num_ranks: int
    seconds: Interval  # of one

    @property
    def step_bytes(self) -> int:
        """Of all of them."""
        return self.num_bytes * self.count

    @property
    def algbw(self) -> Interval:
        """Bytes of a bucket per second."""
        return self.seconds.rate(self.num_bytes)

    @property
    def busbw(self) -> Interval:
        """Bytes per second that a link must carry."""
        return self.algbw.times(bus_factor(self.num_ranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Of a cell's launches that gave a number, of one kind of evidence."""

    cell: Cell  # with control `exchange`
    family: Family
    evidence: str
    num_bytes: int  # of a step
    by_block: Mapping[Block, float]  # seconds of a step
    sizes: tuple[Size, ...]  # ascending; empty if no launch has sound times of single buckets
    notes: tuple[str, ...]

    @property
    def seconds(self) -> Interval:
        """Of a step: the median over launches."""
        return median_interval(list(self.by_block.values()))

    @property
    def busbw(self) -> Interval:
        """Of all buckets of a step together, bytes per second."""
        return self.seconds.rate(self.num_bytes * bus_factor(self.cell.num_ranks))


def alone(records: Iterable[Record]) -> list[Alone]:
    """One for each exchange on more than 1 rank and kind of evidence."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in latest_good(records):
        cell = record.case.cell
        if cell.control == CONTROL and cell.num_ranks > 1 and record.bucket_bytes:
            found.setdefault((record.system, cell.id, record.evidence), []).append(record)
    return [_alone(found[key]) for key in sorted(found)]


def _alone(launches: Sequence[Record]) -> Alone:
    """Launches whose trainer cut other buckets than most measured something else: a note has them."""
    ordered = sorted(launches, key=lambda one: (one.study, one.case.block))
    cuts = Counter(tuple(one.bucket_bytes) for one in ordered)
    buckets = cuts.most_common(1)[0][0]
    own = [one for one in ordered if tuple(one.bucket_bytes) == buckets]
    known = [times for one in own if (times := bucket_times(one)) is not None]
    cell, num = own[0].case.cell, len(own)
    notes = []
    if len(own) < len(ordered):
        others = len(ordered) - len(own)
        notes.append(f"left out: {others} of {len(ordered)} launches, whose training cut other buckets")
    if len(known) < num:
        notes.append(f"{num - len(known)} of {num} launches without sound times of single buckets")
    return Alone(
        cell=cell,
        family=family_of(cell, system=own[0].system),
        evidence=own[0].evidence,
        num_bytes=sum(buckets),
        by_block={(one.study, one.case.block): float(np.median(world_step_seconds(one))) for one in own},
        sizes=tuple(
            Size(
                num_bytes=size,
                count=count,
                num_ranks=cell.num_ranks,
                seconds=median_interval([times[size] for times in known]),
            )
            for size, count in sorted(Counter(buckets).items())
            if known
        ),
        notes=tuple(notes),
    )


def bucket_times(record: Record) -> dict[int, float] | None:
    """Bytes of a bucket -> seconds of one such; None unless all ranks have times of all of them in all windows."""
    sizes, windows = np.array(record.bucket_bytes), steady_windows(record)
    shape = (record.case.cell.num_ranks, len(sizes))
    for window in windows:
        rows = window.bucket_seconds or []
        if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
            return None
    each = np.array([window.bucket_seconds for window in windows], np.float64)  # [W][P][buckets]
    if not np.all((each > 0) & np.isfinite(each)):
        return None
    per_step = each / np.array([window.num_steps for window in windows])[:, None, None]
    return {
        int(size): float(np.median(per_step[:, :, sizes == size].mean(axis=2).max(axis=1)))
        for size in np.unique(sizes)
    }
