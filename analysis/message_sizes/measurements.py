"""The measurements of a run of the message-size benchmark: a number per launch, by library, operation and point.

Launches take turns, and are compared round by round: what a machine does in between changes them alike.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlscale.analysis.statistics import Interval, block_ratio
from dlscale.benchmarks.records.collective_operations import BY_NAME
from dlscale.benchmarks.records.message_sizes import CellFailure, Collective, MessageSizeLaunch, Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSizeRow:
    """One library at one setting, number of ranks and size. Intervals are over launches."""

    role: str  # PEER, or an operation of the driver
    backend: str
    title: str
    setting: str
    variables: Mapping[str, str]
    operation: str
    num_ranks: int
    message_bytes: int
    num_launches: int
    num_nodes: int = 1
    collective: Collective = "allreduce"  # a stream's too, which bounds it
    used_bytes: int | None = None  # of whole elements per rank; None: all
    num_calls: int = 0  # timed, over all launches
    seconds: Interval | None = None  # the median over launches of a launch's median call
    best_seconds: float | None = None  # of all calls
    p99_seconds: float | None = None  # the median over launches of a launch's 99th percentile
    # Of the rate at which each rank can add to its own memory; between nodes, of what a node's link carries.
    fraction_of_bound: Interval | None = None
    ring_speedup: Interval | None = None  # the ring's rate over this one's, paired
    shared_speedup: Interval | None = None  # the same for the ring in its own memory
    tuned: bool = False  # the best of its library's settings at this point
    failure: str | None = None

    @property
    def algbw(self) -> Interval | None:
        """Message bytes per second, in GB/s."""
        return self.seconds.rate(1e-9 * self._bytes) if self.seconds else None

    @property
    def best_algbw(self) -> float | None:
        """The rate of the best call, in GB/s."""
        return 1e-9 * self._bytes / self.best_seconds if self.best_seconds else None

    @property
    def _bytes(self) -> int:
        return self.message_bytes if self.used_bytes is None else self.used_bytes

    @property
    def bus_factor(self) -> float:
        """The ratio of busbw to algbw, as nccl-tests has it: what every rank must send or receive per byte at least."""
        return BY_NAME[self.collective].bus_factor(self.num_ranks)

    def within_wire(self, bytes_per_second: float) -> MessageSizeRow:
        """The row, bound by the link of a node: it sends and receives what a rank must if a node were one."""
        if not self.seconds:
            return self
        least_bytes = BY_NAME[self.collective].bus_factor(self.num_nodes) * self._bytes
        return replace(self, fraction_of_bound=self.seconds.rate(least_bytes / bytes_per_second))


def fastest(rows: Sequence[MessageSizeRow]) -> MessageSizeRow | None:
    """The fastest of rows at one point, by their ratios to the ring if all have one: ratios drift less than times."""
    measured = [row for row in rows if row.seconds]
    if measured and all(row.ring_speedup for row in measured):
        return min(measured, key=lambda row: row.ring_speedup.center if row.ring_speedup else math.inf)
    return min(measured, key=lambda row: row.seconds.center if row.seconds else math.inf, default=None)


RING, RING_SHARED, STREAM = "ring", "ring-shared", "stream"
PEER = "peer"  # a library's own operation, whatever its name: "mpi", "gloo", "horovod"


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrarySetting:
    """A library at a setting, whose program a launch ran."""

    backend: str
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAt:
    """A measured point: collective operation, number of ranks and message size."""

    collective: Collective = "allreduce"
    num_ranks: int
    message_bytes: int


Turn = tuple[int, int]  # the launches that run together, and a round
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimes:
    """The slowest rank's seconds, over the calls of one launch."""

    median: float
    best: float
    p99: float
    num_calls: int
    by_turn: Mapping[Turn, float]  # medians; empty if the launch was alone

    def over(self, other: CallTimes) -> float:
        """The ratio of two launches' times: the median over the turns that they took right after each other.

        That of their medians where there are none.
        """
        common = self.by_turn.keys() & other.by_turn.keys()
        ratios = [self.by_turn[turn] / other.by_turn[turn] for turn in common]
        return statistics.median(ratios) if ratios else self.median / other.median


Series = Mapping[int, CallTimes]  # by block


def ratio(over: Series, under: Series) -> Interval | None:
    """The ratio of two operations' times, paired in blocks where they have common ones; None without any times."""
    if not over or not under:
        return None
    common = over.keys() & under.keys()
    if not common:
        return block_ratio(medians(over), medians(under))
    return block_ratio(
        {block: over[block].over(under[block]) for block in common}, dict.fromkeys(common, 1.0)
    )


class MessageTimes:
    """All measured launches of a run."""

    def __init__(self, launches: Iterable[MessageSizeLaunch]) -> None:
        self._series: dict[tuple[LibrarySetting, str, MeasuredAt], dict[int, CallTimes]] = defaultdict(dict)
        self._used_bytes: dict[MeasuredAt, int | None] = {}
        for launch in launches:
            self._used_bytes.update({point_of(launch, block): block.used_bytes for block in launch.samples})
            host = LibrarySetting(backend=launch.backend, setting=launch.setting)
            for (operation, point), rounds in _rounds_by_point(launch).items():
                series = self._series[host, role_of(launch, operation), point]
                series[launch.block] = _summary(rounds, launch.together)

    def of(self, host: LibrarySetting | None, operation: str, point: MeasuredAt) -> Series:
        """The times by block, for the blocks in which the operation was measured."""
        return {} if host is None else self._series.get((host, operation, point), {})

    def used_bytes(self, point: MeasuredAt) -> int | None:
        """The bytes of whole elements per rank; None: all of the message."""
        return self._used_bytes.get(point)

    def hosting(self, operation: str, num_ranks: int) -> list[LibrarySetting]:
        """The library settings whose programs measured an operation on that many ranks."""
        hosts = (
            host for host, name, point in self._series if (name, point.num_ranks) == (operation, num_ranks)
        )
        return list(dict.fromkeys(hosts))


def role_of(launch: MessageSizeLaunch, operation: str) -> str:
    """The role of an operation in rows: PEER for a library's own, else its name."""
    return PEER if operation in {"mpi", launch.backend} - {RING} else operation


def medians(series: Series) -> dict[Hashable, float]:
    """The median seconds by block."""
    return {block: times.median for block, times in series.items()}


def slowest_by_point(launch: MessageSizeLaunch) -> dict[tuple[str, MeasuredAt], Floats]:
    """Seconds of each call on its slowest rank, all rounds together."""
    return {key: np.concatenate(list(rounds.values())) for key, rounds in _rounds_by_point(launch).items()}


def _rounds_by_point(launch: MessageSizeLaunch) -> dict[tuple[str, MeasuredAt], dict[int, Floats]]:
    rounds: dict[tuple[str, MeasuredAt], dict[int, Floats]] = defaultdict(dict)
    for block in launch.samples:
        slowest = 1e-9 * np.asarray(block.nanoseconds, np.float64).max(axis=0)
        rounds[block.operation, point_of(launch, block)][block.round] = slowest
    return rounds


def _summary(rounds: Mapping[int, Floats], together: int | None) -> CallTimes:
    """Median, best and 99th percentile (the largest, if there are fewer than 100 calls) of all rounds' calls."""
    calls = np.concatenate(list(rounds.values()))
    in_turn = {} if together is None else {(together, index): times for index, times in rounds.items()}
    return CallTimes(
        median=float(np.median(calls)),
        best=float(calls.min()),
        p99=float(np.quantile(calls, 0.99, method="higher")),
        num_calls=len(calls),
        by_turn={turn: float(np.median(times)) for turn, times in in_turn.items()},
    )


def point_of(launch: MessageSizeLaunch, cell: Samples | CellFailure) -> MeasuredAt:
    """The point of a block of calls, or of a failure, of a launch."""
    return MeasuredAt(
        collective=cell.collective, num_ranks=launch.num_ranks, message_bytes=cell.message_bytes
    )
