"""How long ways of doing the same take, in lockstep: all ranks do the same things, and the slowest rank counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLE_SECONDS = 100e-6  # quicker calls are timed several at once
MAX_CALLS = 1000
MIN_ROUNDS = 3
MAX_ROUNDS = 200
NUM_WARM_UPS = 2


def nothing() -> None:
    """Takes no time: what a rank does that has no part in a way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """`call` is timed; `prepare` comes before each sample and is not."""

    call: Callable[[], None] = nothing
    prepare: Callable[[], None] = nothing


class Lockstep:
    """Times calls on all ranks of `control`, an mpi4py communicator."""

    def __init__(self, control: Any) -> None:
        self._control = control

    def fastest(self, ways: Mapping[str, Way], *, seconds: float) -> dict[str, float]:
        """Seconds of a call of each way: the least over rounds of the most over ranks. Collective.

        The ways take turns until about `seconds` are over, so that none meets another machine than the others. Every
        rank gets the same numbers, and does every call as often: rank 0's watch says when to end.
        """
        begin = time.perf_counter()
        num_calls = [1] * len(ways)
        least = np.full(len(ways), np.inf)
        for _ in range(NUM_WARM_UPS):
            least = np.minimum(least, self._round(ways.values(), num_calls))
        num_calls = [int(min(max(SAMPLE_SECONDS / each, 1), MAX_CALLS)) for each in least]
        least[:] = np.inf
        for number in range(MAX_ROUNDS):
            if number >= MIN_ROUNDS and self._control.bcast(time.perf_counter() - begin >= seconds):
                break
            least = np.minimum(least, self._round(ways.values(), num_calls))
        return dict(zip(ways, (float(each) for each in least), strict=True))

    def _round(self, ways: Any, num_calls: Sequence[int]) -> NDArray[np.float64]:
        from mpi4py import MPI

        mine = [self._sample(way, calls) for way, calls in zip(ways, num_calls, strict=True)]
        slowest = np.empty(len(mine))
        self._control.Allreduce(np.array(mine), slowest, op=MPI.MAX)
        return slowest

    def _sample(self, way: Way, num_calls: int) -> float:
        """Seconds of a call on this rank, from a common start."""
        way.prepare()
        self._control.Barrier()
        begin = time.perf_counter()
        for _ in range(num_calls):
            way.call()
        return (time.perf_counter() - begin) / num_calls
