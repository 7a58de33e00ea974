"""What the launches of a run of the message-size benchmark measured: a number per launch, by library, operation
and place.

A virtual machine may move its CPUs while a run lasts: from a common cache to none and back, which changes everything
between caches three- to fivefold. How long a flag takes from one rank to another and back is in the records, before
and after every size, so `only_at_distance` can tell what was measured at one distance from the rest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dlscale.analysis.statistics import Interval
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, MessageSizeRun, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSizeRow:
    """One library at one setting, at one place. Intervals are over launches."""

    role: str  # PEER, or an operation of the driver
    backend: str
    title: str
    setting: str
    variables: Mapping[str, str]
    operation: str
    num_ranks: int
    mode: str
    message_bytes: int
    num_launches: int
    num_calls: int = 0  # timed, over all launches
    seconds: Interval | None = None  # the median over launches of a launch's median call
    best_seconds: float | None = None  # of all calls
    p99_seconds: float | None = None  # the median over launches of a launch's 99th percentile
    fraction_of_bound: Interval | None = None  # of the rate at which each rank can add to its own memory
    ring_speedup: Interval | None = None  # the ring's rate over this one's, paired
    shared_speedup: Interval | None = None  # the same for the ring in memory of its own
    tuned: bool = False  # the best of its library's settings at this place
    failure: str | None = None

    @property
    def algbw(self) -> Interval | None:
        """Message bytes per second, in GB/s."""
        return self.seconds.rate(1e-9 * self.message_bytes) if self.seconds else None

    @property
    def best_algbw(self) -> float | None:
        """The rate of the best call, in GB/s."""
        return 1e-9 * self.message_bytes / self.best_seconds if self.best_seconds else None

    @property
    def bus_factor(self) -> float:
        """The ratio of busbw to algbw: what every rank must at least send and receive, per byte of the message."""
        return 2 * (self.num_ranks - 1) / self.num_ranks


def fastest(rows: Sequence[MessageSizeRow]) -> MessageSizeRow | None:
    """The fastest of rows at one place; by their ratios to the ring if all have one, which drift less than times."""
    measured = [row for row in rows if row.seconds]
    if measured and all(row.ring_speedup for row in measured):
        return min(measured, key=lambda row: row.ring_speedup.center if row.ring_speedup else math.inf)
    return min(measured, key=lambda row: row.seconds.center if row.seconds else math.inf, default=None)


RING, RING_SHARED, UNSYNCHRONISED, STREAM = "ring", "ring-shared", "ring-unsynchronised", "stream"
PEER = "peer"  # the operation of the library itself, however it is called: "mpi", "gloo", "horovod"


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrarySetting:
    """Whose program a launch was: a library at a setting."""

    backend: str
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAt:
    """Where something was measured."""

    num_ranks: int
    mode: Mode
    message_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimes:
    """The slowest rank's seconds, over the calls of one launch."""

    median: float
    best: float
    p99: float
    num_calls: int


Series = Mapping[int, CallTimes]  # by block
ByBlock = dict[Hashable, float]  # seconds, as statistics.block_ratio takes them


class MessageTimes:
    """All measured launches of a run."""

    def __init__(self, launches: Iterable[MessageSizeLaunch]) -> None:
        self._series: dict[tuple[LibrarySetting, str, MeasuredAt], dict[int, CallTimes]] = defaultdict(dict)
        for launch in launches:
            host = LibrarySetting(backend=launch.backend, setting=launch.setting)
            for (operation, point), calls in slowest_by_point(launch).items():
                self._series[host, role_of(launch, operation), point][launch.block] = summary_of(calls)

    def of(self, host: LibrarySetting | None, operation: str, point: MeasuredAt) -> Series:
        """A number per block in which it was measured; none where it was not."""
        return {} if host is None else self._series.get((host, operation, point), {})

    def hosting(self, operation: str, num_ranks: int) -> list[LibrarySetting]:
        """Those in whose programs an operation was measured on so many ranks."""
        hosts = (
            host for host, name, point in self._series if (name, point.num_ranks) == (operation, num_ranks)
        )
        return list(dict.fromkeys(hosts))


def role_of(launch: MessageSizeLaunch, operation: str) -> str:
    """What an operation is called in rows: a library's own allreduce is PEER, all others keep their names."""
    return PEER if operation in {"mpi", launch.backend} - {RING} else operation


def medians(series: Series) -> ByBlock:
    """Seconds by block."""
    return {block: times.median for block, times in series.items()}


def slowest_by_point(
    launch: MessageSizeLaunch,
) -> dict[tuple[str, MeasuredAt], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Seconds of each call on the rank that took longest, all blocks of calls together."""
    calls: dict[tuple[str, MeasuredAt], list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = defaultdict(
        list
    )
    for block in launch.samples:
        point = MeasuredAt(num_ranks=launch.num_ranks, mode=block.mode, message_bytes=block.message_bytes)
        calls[block.operation, point].append(1e-9 * np.asarray(block.nanoseconds, np.float64).max(axis=0))
    return {key: np.concatenate(parts) for key, parts in calls.items()}


def summary_of(calls: np.ndarray[tuple[int], np.dtype[np.float64]]) -> CallTimes:
    """Median, best and 99th percentile (the largest, if there are fewer than 100 calls)."""
    return CallTimes(
        median=float(np.median(calls)),
        best=float(calls.min()),
        p99=float(np.quantile(calls, 0.99, method="higher")),
        num_calls=len(calls),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """Limits, in nanoseconds; both included."""

    least: float
    most: float

    def holds(self, *nanoseconds: float) -> bool:
        """All of them lie within."""
        return all(self.least <= time <= self.most for time in nanoseconds)


def only_at_distance(
    campaign: MessageSizeRun, launches: Sequence[MessageSizeLaunch], wanted: RoundTrip
) -> list[MessageSizeLaunch]:
    """The measured launches with the sizes before and after which a flag took as long as `wanted`.

    Launches without that time are left out, and so are ranks that share CPUs; launches that were not measured, such as
    the comparison with IMB-MPI1, stay as they are. Raises UsageError if nothing is left.
    """
    measured = [
        launch
        for launch in launches
        if launch.purpose == "measured" and launch.num_ranks <= len(campaign.cpus)
    ]
    limited = (_only_at_distance(campaign, launch, wanted) for launch in measured)
    kept = [launch for launch in limited if launch.samples]
    if not kept:
        trips = sorted(time for launch in measured for time in launch.round_trip_nanoseconds)
        took = f"; it took {trips[0]} to {trips[-1]}" if trips else ""
        raise UsageError(
            f"--round-trip: nothing was measured while a flag took {wanted.least:g} to {wanted.most:g} ns{took}"
        )
    return kept + [launch for launch in launches if launch.purpose != "measured"]


def _only_at_distance(
    campaign: MessageSizeRun, launch: MessageSizeLaunch, wanted: RoundTrip
) -> MessageSizeLaunch:
    """Its cells were measured mode by mode, size by size, with a round trip before the first and after each."""
    trips = launch.round_trip_nanoseconds
    cells = [(mode, size) for mode in campaign.modes for size in campaign.sizes]
    # Stopped early, a launch has fewer of them than cells.
    around = zip(cells, pairwise(trips), strict=False)
    good = {cell: pair for cell, pair in around if wanted.holds(*pair)}
    return launch.model_copy(
        update={
            "samples": [block for block in launch.samples if (block.mode, block.message_bytes) in good],
            "failures": [cell for cell in launch.failures if (cell.mode, cell.message_bytes) in good],
            "round_trip_nanoseconds": [time for pair in good.values() for time in pair],
        }
    )
