"""What the launches of a run measured, by who, what and where: a number per launch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dlscale.benchmarks.collectives.record import Launch, Mode

RING, RING_SHARED, UNSYNCHRONISED, STREAM = "ring", "ring-shared", "ring-unsynchronised", "stream"
PEER = "peer"  # the operation of the library itself, however it is called: "mpi", "gloo", "horovod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Whose program a launch was: a library at a setting."""

    backend: str
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where something was measured."""

    num_ranks: int
    mode: Mode
    message_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimes:
    """Of one launch, over its calls: the slowest rank's seconds."""

    median: float
    best: float
    p99: float
    num_calls: int


Series = Mapping[int, CallTimes]  # by block
ByBlock = dict[Hashable, float]  # seconds, as statistics.block_ratio takes them


class Times:
    """All measured launches of a run."""

    def __init__(self, launches: Iterable[Launch]) -> None:
        self._series: dict[tuple[Host, str, Point], dict[int, CallTimes]] = defaultdict(dict)
        for launch in launches:
            host = Host(backend=launch.backend, setting=launch.setting)
            for (operation, point), calls in slowest_by_point(launch).items():
                name = PEER if operation in ("mpi", launch.backend) else operation
                self._series[host, name, point][launch.block] = summary_of(calls)

    def of(self, host: Host | None, operation: str, point: Point) -> Series:
        """A number per block in which it was measured; none where it was not."""
        return {} if host is None else self._series.get((host, operation, point), {})

    def hosting(self, operation: str, num_ranks: int) -> list[Host]:
        """Those in whose programs an operation was measured on so many ranks."""
        found = (
            host for host, name, point in self._series if (name, point.num_ranks) == (operation, num_ranks)
        )
        return list(dict.fromkeys(found))


def medians(series: Series) -> ByBlock:
    """Seconds by block."""
    return {block: times.median for block, times in series.items()}


def slowest_by_point(launch: Launch) -> dict[tuple[str, Point], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Seconds of each call on the rank that took longest, all blocks of calls together."""
    found: dict[tuple[str, Point], list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = defaultdict(list)
    for block in launch.samples:
        point = Point(num_ranks=launch.num_ranks, mode=block.mode, message_bytes=block.message_bytes)
        found[block.operation, point].append(1e-9 * np.asarray(block.nanoseconds, np.float64).max(axis=0))
    return {key: np.concatenate(parts) for key, parts in found.items()}


def summary_of(calls: np.ndarray[tuple[int], np.dtype[np.float64]]) -> CallTimes:
    """Median, best and 99th percentile (the largest, if there are fewer than 100 calls)."""
    return CallTimes(
        median=float(np.median(calls)),
        best=float(calls.min()),
        p99=float(np.quantile(calls, 0.99, method="higher")),
        num_calls=len(calls),
    )
