"""Timed trials of algorithms for the same operation, and the choice between them.

All ranks do the same trials in lockstep, and the slowest rank counts. From a table of seconds, per message size and
variant, come the switch points, by arithmetic only. `Trials` has what the tuner's questions share: sizes, buffers, a
share of the time, and a record of the answers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.ring.plan import Timing

SAMPLE_SECONDS = 100e-6  # quicker calls are timed several at once
MAX_CALLS = 1000
MIN_ROUNDS = 3
MAX_ROUNDS = 200
NUM_WARM_UPS = 2


def no_preparation() -> None:
    """Takes no time: what a rank does that has no part in a way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """`call` is timed; `prepare` comes before each sample and is not."""

    call: Callable[[], None] = no_preparation
    prepare: Callable[[], None] = no_preparation


class Lockstep:
    """Times calls on all ranks of `control`, an mpi4py communicator."""

    def __init__(self, control: Any) -> None:
        self._control = control

    def fastest(self, ways: Mapping[str, Variant], *, seconds: float) -> dict[str, float]:
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

    def _sample(self, way: Variant, num_calls: int) -> float:
        """Seconds of a call on this rank, from a common start."""
        way.prepare()
        self._control.Barrier()
        begin = time.perf_counter()
        for _ in range(num_calls):
            way.call()
        return (time.perf_counter() - begin) / num_calls


Way = TypeVar("Way")
SecondsTable = Mapping[int, Mapping[Way, float]]

NOISE = 0.03  # a way must be faster by so much to be preferred to a simpler one or to the default


def clearly_fastest(seconds: Mapping[Way, float], default: Way) -> Way:
    """The fastest way, or the default where nothing is clearly faster."""
    fastest = min(seconds, key=seconds.__getitem__)
    return fastest if seconds[fastest] < (1 - NOISE) * seconds[default] else default


def best_overall(table: SecondsTable[Way], default: Way) -> Way:
    """The way that is fastest on the geometric mean over sizes; the default if nothing is clearly faster."""
    ways = list(next(iter(table.values())))
    return clearly_fastest({way: _slowdown(table, way) for way in ways}, default)


def switch_points(table: SecondsTable[Way], order: Sequence[Way], defaults: Sequence[int]) -> list[int]:
    """Up to which size each way of `order` but the last serves, later ones serving larger sizes.

    Of all such choices the one that loses least against the fastest way of each size. Between two sizes that were
    tried lies their geometric mean. Beyond the largest that was tried `defaults` hold, the same limits as they were.
    """
    sizes = sorted(table)
    # costs[w]: the least loss so far if way w serves this size; paths[w]: which ways served the sizes up to here.
    costs = [0.0] * len(order)
    paths: list[list[int]] = [[] for _ in order]
    for size in sizes:
        fastest = min(table[size].values())
        # The cheapest of this and earlier ways goes on; min keeps the earlier one where they are equal.
        before = [min(range(w + 1), key=costs.__getitem__) for w in range(len(order))]
        costs, paths = (
            [costs[before[w]] + math.log(table[size][way] / fastest) for w, way in enumerate(order)],
            [[*paths[before[w]], w] for w in range(len(order))],
        )
    served = paths[min(range(len(order)), key=costs.__getitem__)]
    limits = []
    for w in range(len(order) - 1):
        limit = max((_limit(sizes, i) for i, by in enumerate(served) if by <= w), default=0)
        limits.append(max(limit, defaults[w]) if served[-1] <= w else limit)
    return limits


def few_manners(table: SecondsTable[Way], families: Mapping[Way, bool], most: int) -> list[Way]:
    """At most `most` ways, best overall first, that are together as good as all of them.

    Beside the best overall: each that is clearly faster at some size, and the best of the other family, since which
    family is the faster one may change while a program runs.
    """
    ways = sorted(families, key=lambda way: _slowdown(table, way))
    chosen = [ways[0]]
    chosen += [way for way in ways if families[way] != families[ways[0]]][:1]
    for seconds in table.values():
        fastest = min(seconds, key=seconds.__getitem__)
        if len(chosen) < most and seconds[fastest] < (1 - NOISE) * min(seconds[way] for way in chosen):
            chosen.append(fastest)
    return chosen


def _slowdown(table: SecondsTable[Way], way: Way) -> float:
    """Against the fastest way of each size, geometric mean."""
    return math.exp(sum(math.log(s[way] / min(s.values())) for s in table.values()) / len(table))


def _limit(sizes: Sequence[int], index: int) -> int:
    if index + 1 == len(sizes):
        return sizes[index]
    return math.isqrt(sizes[index] * sizes[index + 1])


TrialTable = dict[int, dict[str, float]]
Tell = Callable[[str], None]

PATIENCE = 4.0  # times its share, a size may take for its fewest rounds


def trial_sizes(first: int, last: int, *, max_bytes: int) -> list[int]:
    """Message sizes in steps of four, none above `max_bytes`."""
    found = []
    while first <= min(last, max_bytes):
        found.append(first)
        first *= 4
    return found


class Trials:
    """Asks questions in lockstep; every method is collective.

    `seconds` is the share of one question at one size. `tell` is called with the question before each of them.
    """

    def __init__(self, control: Any, *, max_bytes: int, seconds: float, tell: Tell) -> None:
        self._lockstep = Lockstep(control)
        self._seconds, self._tell = seconds, tell
        self.max_bytes = max_bytes
        self.timings: list[Timing] = []

    def ask(
        self,
        question: str,
        over: Sequence[int],
        ways: Callable[[int], Mapping[str, Variant]],
        *,
        default: Callable[[int], str],
    ) -> TrialTable:
        """Seconds of every way for every size; sizes that would take too long are left out, from the first of them.

        `default`: the way of a size without a plan.
        """
        table: TrialTable = {}
        expected = 0.0
        for size in over:
            if expected > PATIENCE * self._seconds:
                break
            self._tell(f"{question}, {size // 1024} KiB")
            table[size] = self._lockstep.fastest(ways(size), seconds=self._seconds)
            # Four times the bytes take at most four times as long.
            expected = 4 * (MIN_ROUNDS + NUM_WARM_UPS) * sum(table[size].values())
            self.timings.append(
                Timing(question=question, message_bytes=size, default=default(size), seconds=table[size])
            )
        return table


def zeros(num_bytes: int, dtype: str = "float32") -> NDArray[Any]:
    """A buffer whose sums stay zero, in memory that has been touched."""
    buffer = np.empty(num_bytes // np.dtype(dtype).itemsize, dtype=dtype)
    buffer.fill(0)
    return buffer
