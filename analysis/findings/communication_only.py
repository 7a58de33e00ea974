"""Communication only: the time of a backend's exchange without computation, per step and per bucket size.

Control `exchange` averages the training's buckets one after the other, without computing. Before each bucket the ranks
rewrite it and synchronise, outside the timed region; so a step's exchange is the sum of its buckets, not of the
windows. A launch's value is the median over its windows of the slowest rank's sum. The same launches measure the
memory bandwidth of a node while all of its ranks copy at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.families import Family
from dlscale.analysis.launches import Block, CellLaunches, good_launches
from dlscale.analysis.records import Seconds
from dlscale.analysis.statistics import Interval, median_interval
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.collective_operations import BY_NAME
from dlscale.benchmarks.records.record import Record

EXCHANGE_CONTROL = "exchange"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSize:
    """The buckets of one size."""

    num_bytes: int  # of one
    count: int  # in a step
    num_ranks: int
    seconds: Interval  # of one

    @property
    def step_bytes(self) -> int:
        """Bytes of all buckets of this size in a step."""
        return self.num_bytes * self.count

    @property
    def algbw(self) -> Interval:
        """Bytes of a bucket per second."""
        return self.seconds.rate(self.num_bytes)

    @property
    def busbw(self) -> Interval:
        """Bytes per second on each link."""
        return self.algbw.times(_bus_factor(self.num_ranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationOnly:
    """The exchange times of a cell's good launches of one kind of evidence."""

    cell: Cell  # with control `exchange`
    family: Family
    evidence: str
    num_bytes: int  # of a step
    by_block: Mapping[Block, float]  # seconds of a step
    sizes: tuple[BucketSize, ...]  # ascending
    notes: tuple[str, ...]

    @property
    def seconds(self) -> Interval:
        """Seconds of a step's exchange: the median over launches."""
        return median_interval(list(self.by_block.values()))

    @property
    def busbw(self) -> Interval:
        """The busbw of all buckets of a step together, bytes per second."""
        return self.seconds.rate(self.num_bytes * _bus_factor(self.cell.num_ranks))


def _bus_factor(num_ranks: int) -> float:
    return BY_NAME["allreduce"].bus_factor(num_ranks)


def communication_only(measured: Iterable[CellLaunches]) -> list[CommunicationOnly]:
    """One for each exchange on more than 1 rank and kind of evidence."""
    exchanges = (
        _communication_only(launches)
        for launches in good_launches(measured, controls={EXCHANGE_CONTROL})
        if launches.cell.num_ranks > 1
    )
    return [exchange for exchange in exchanges if exchange]


def _communication_only(launches: CellLaunches) -> CommunicationOnly | None:
    """The exchange times of these launches; those with other bucket sizes than most are left out, with a note."""
    cell, ordered = launches.cell, [case for case in launches.cases if case.record.bucket_bytes]
    cuts = Counter(tuple(case.record.bucket_bytes) for case in ordered)
    buckets = max(cuts, key=lambda cut: cuts[cut], default=())
    own = [case for case in ordered if tuple(case.record.bucket_bytes) == buckets]
    known = [(case, times) for case in own if (times := bucket_seconds(case.record)) is not None]
    if not known:
        return None
    notes = []
    if out := len(ordered) - len(own):
        notes.append(f"left out: {out} of {len(ordered)} launches, whose training cut other buckets")
    if out := len(own) - len(known):
        notes.append(f"left out: {out} of {len(own)} launches without sound times of buckets")
    return CommunicationOnly(
        cell=cell,
        family=launches.family,
        evidence=launches.evidence,
        num_bytes=sum(buckets),
        by_block={case.block: float(np.median(times.sum(axis=2).max(axis=1))) for case, times in known},
        sizes=tuple(
            BucketSize(
                num_bytes=size,
                count=count,
                num_ranks=cell.num_ranks,
                seconds=median_interval([_of_size(times, buckets, size) for _, times in known]),
            )
            for size, count in sorted(Counter(buckets).items())
        ),
        notes=tuple(notes),
    )


def bucket_seconds(record: Record) -> Seconds | None:
    """Seconds per step of each bucket, [W][P][buckets]; None unless all ranks have valid times of all of them."""
    windows = record.counted
    each = windows.bucket_seconds
    if each is None or each.shape[2] != len(record.bucket_bytes) or not (each > 0).all():
        return None
    per_step: Seconds = each / windows.num_steps[:, None, None]
    return per_step


def _of_size(times: Seconds, buckets: Sequence[int], size: int) -> float:
    """The slowest rank's mean of one bucket of that size, median over windows."""
    return float(np.median(times[:, :, np.array(buckets) == size].mean(axis=2).max(axis=1)))
