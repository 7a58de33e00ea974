"""Timed trials of variants of the same allreduce, and the choice between them.

All ranks do the same trials in lockstep, and the slowest rank counts. From a table of seconds, per message size and
variant, come the switch points, by arithmetic only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.ring.plan import Timing

if TYPE_CHECKING:
    from dlscale.collectives.ring._engine import Engine

SAMPLE_SECONDS = 100e-6  # quicker calls are timed several at once
MAX_CALLS = 1000
MIN_ROUNDS = 3
MAX_ROUNDS = 200
NUM_WARM_UPS = 2
PATIENCE = 4.0  # times its share that a size may take for its fewest rounds
NOISE = 0.03  # a variant must be faster by so much to be preferred to a simpler one or to the default

SecondsTable = Mapping[int, Mapping[str, float]]  # size -> variant -> seconds


def trial_sizes(first: int, last: int) -> list[int]:
    """Message sizes in steps of four."""
    return [first * 4**i for i in range(32) if first * 4**i <= last]


class Variant:
    """An engine and how it is set before its allreduce is timed; without one, a rank that has no part in the trial."""

    def __init__(self, engine: Engine | None = None, prepare: Callable[[], None] | None = None) -> None:
        self._engine, self._prepare = engine, prepare

    def seconds(self, buffer: NDArray[Any], num_calls: int, *, control: Any) -> float:
        """Seconds of a call on this rank, from a common start."""
        if self._prepare:
            self._prepare()
        control.Barrier()
        begin = time.perf_counter()
        if self._engine:
            for _ in range(num_calls):
                self._engine.allreduce(buffer)
        return (time.perf_counter() - begin) / num_calls


class Trials:
    """Asks questions on all ranks of `control`, an mpi4py communicator; every method is collective.

    `seconds` is the share of one question at one size. `announce` is called with the question before each of them.
    """

    def __init__(self, control: Any, *, seconds: float, announce: Callable[[str], None]) -> None:
        self._control, self._seconds, self._announce = control, seconds, announce
        self.timings: list[Timing] = []

    def ask(
        self,
        question: str,
        sizes: list[int],
        variants: Mapping[str, Variant],
        *,
        default: Callable[[int], str],
    ) -> SecondsTable:
        """Seconds of every variant for every size, up to the first size that would take too long.

        `default`: the variant of a size without a plan.
        """
        table: dict[int, dict[str, float]] = {}
        expected = 0.0
        for size in sizes:
            if expected > PATIENCE * self._seconds:
                break
            self._announce(f"{question}, {size // 1024} KiB")
            table[size] = self._fastest(size, variants)
            # Four times the bytes take at most four times as long.
            expected = 4 * (MIN_ROUNDS + NUM_WARM_UPS) * sum(table[size].values())
            self.timings.append(
                Timing(question=question, message_bytes=size, default=default(size), seconds=table[size])
            )
        return table

    def _fastest(self, size: int, variants: Mapping[str, Variant]) -> dict[str, float]:
        """Seconds of a call of each variant: the least over rounds of the most over ranks.

        The variants take turns until the time is over, so that all meet the same state of the machine. Every rank
        gets the same numbers, and does every call as often: rank 0's watch says when to end.
        """
        begin = time.perf_counter()
        buffer = np.empty(size // 4, dtype=np.float32)
        buffer.fill(0)  # sums stay zero, in memory that has been touched
        num_calls = [1] * len(variants)
        least = np.full(len(variants), np.inf)
        for _ in range(NUM_WARM_UPS):
            least = np.minimum(least, self._round(buffer, variants.values(), num_calls))
        num_calls = [int(min(max(SAMPLE_SECONDS / each, 1), MAX_CALLS)) for each in least]
        least[:] = np.inf
        for number in range(MAX_ROUNDS):
            over = time.perf_counter() - begin >= self._seconds
            if number >= MIN_ROUNDS and self._control.bcast(over):
                break
            least = np.minimum(least, self._round(buffer, variants.values(), num_calls))
        return dict(zip(variants, (float(each) for each in least), strict=True))

    def _round(
        self, buffer: NDArray[Any], variants: Iterable[Variant], num_calls: Sequence[int]
    ) -> NDArray[np.float64]:
        from mpi4py import MPI

        own = [
            variant.seconds(buffer, calls, control=self._control)
            for variant, calls in zip(variants, num_calls, strict=True)
        ]
        slowest = np.empty(len(own))
        self._control.Allreduce(np.array(own), slowest, op=MPI.MAX)
        return slowest


def clearly_fastest(seconds: Mapping[str, float], default: str) -> str:
    """The fastest variant, or the default where nothing is clearly faster."""
    fastest = min(seconds, key=seconds.__getitem__)
    return fastest if seconds[fastest] < (1 - NOISE) * seconds[default] else default


def best_overall(table: SecondsTable, default: str) -> str:
    """The variant that is fastest on the geometric mean over sizes; the default if nothing is clearly faster."""
    names = list(next(iter(table.values())))
    return clearly_fastest({name: _slowdown(table, name) for name in names}, default)


def switch_points(table: SecondsTable, order: Sequence[str], defaults: Sequence[int]) -> list[int]:
    """Up to which size each variant of `order` but the last serves, later ones serving larger sizes.

    The choice that loses least against the fastest variant of each size. Between two sizes that were tried lies their
    geometric mean. Beyond the largest that was tried `defaults` hold, the limits without a plan.
    """
    sizes = sorted(table)
    # costs[v]: the least loss so far if variant v serves this size; paths[v]: the variants of the sizes up to here.
    costs = [0.0] * len(order)
    paths: list[list[int]] = [[] for _ in order]
    for size in sizes:
        fastest = min(table[size].values())
        # The cheapest of this and earlier variants goes on; min keeps the earlier one where they are equal.
        before = [min(range(v + 1), key=costs.__getitem__) for v in range(len(order))]
        costs, paths = (
            [costs[before[v]] + math.log(table[size][name] / fastest) for v, name in enumerate(order)],
            [[*paths[before[v]], v] for v in range(len(order))],
        )
    served = paths[min(range(len(order)), key=costs.__getitem__)]
    limits = []
    for v in range(len(order) - 1):
        limit = max((_limit(sizes, i) for i, by in enumerate(served) if by <= v), default=0)
        limits.append(max(limit, defaults[v]) if served[-1] <= v else limit)
    return limits


def _slowdown(table: SecondsTable, name: str) -> float:
    """Against the fastest variant of each size, geometric mean."""
    return math.exp(sum(math.log(s[name] / min(s.values())) for s in table.values()) / len(table))


def _limit(sizes: Sequence[int], index: int) -> int:
    if index + 1 == len(sizes):
        return sizes[index]
    return math.isqrt(sizes[index] * sizes[index + 1])
