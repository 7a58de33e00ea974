"""The collective operations of the message-size benchmark: a row each, and everybody else loops over the rows.

The driver reads this file too, in environments without dlscale: it imports nothing but NumPy. Sizes are those of
nccl-tests; where a message of S bytes is cut into parts, it is as many whole elements per rank as fit into S.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

Collective = Literal["allreduce", "reduce_scatter", "allgather", "broadcast"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
ITEM_BYTES = 4  # of a float32
PATTERN = 1021  # a prime: parts begin at different places of it

Array = np.ndarray[Any, np.dtype[Any]]
Values = Callable[[int, int, int], Array]  # from elements of the message, rank and number of ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveOperation:
    """One operation: what a message of S bytes on P ranks is, and what its bandwidth means."""

    name: Collective
    title: str
    message: str  # who has what before and after, for people
    bus_factor: Callable[[int], float]  # from P: what each rank must send or receive per byte, at least
    wanted: Values  # what it must end with, or the beginning of it: nothing where it does not count
    in_parts: bool = False  # the message is cut into a part per rank
    # Who sends may be done before another rank has started, whose own time then misses what was sent before. In all
    # other operations somebody ends after all have started.
    from_first_start: bool = False

    def num_elements(self, message_bytes: int, size: int) -> int:
        """Elements of a message on `size` ranks."""
        count = message_bytes // ITEM_BYTES
        return count - count % size if self.in_parts else count

    def call_seconds(self, starts: Array, seconds: Array) -> Array:
        """What a call took, [rank][call], from starts on a common clock and from what each rank took itself."""
        return seconds + starts - starts.min(axis=0) if self.from_first_start else seconds


def part(count: int, rank: int, size: int) -> slice:
    """A rank's part of a message of `count` elements."""
    each = count // size
    return slice(rank * each, (rank + 1) * each)


def _pattern(count: int) -> Array:
    return np.resize(np.arange(PATTERN, dtype=np.float32), count)


def given(count: int, rank: int) -> Array:
    """A rank's message before: different on every rank and index, and exact in float32.

    A dropped or doubled part cannot cancel out.
    """
    return _pattern(count) + np.float32(rank)


def _sum(count: int, _rank: int, size: int) -> Array:
    return _pattern(count) * size + size * (size - 1) / 2


OPERATIONS = (
    CollectiveOperation(
        name="allreduce",
        title="allreduce, fp32 sum, in place",
        message="S on each rank, which gets the sum in place",
        bus_factor=lambda size: 2 * (size - 1) / size,
        wanted=_sum,
    ),
    CollectiveOperation(
        name="reduce_scatter",
        title="reduce-scatter, fp32 sum, from the message to a part of it per rank",
        message="S on each rank, which gets its part of the sum, S/P, in other memory",
        bus_factor=lambda size: (size - 1) / size,
        wanted=lambda count, rank, size: _sum(count, rank, size)[part(count, rank, size)],
        in_parts=True,
    ),
    CollectiveOperation(
        name="allgather",
        title="allgather, fp32, from a part per rank to the message",
        message="a part of S/P on each rank, which gets all parts, S, around its own",
        bus_factor=lambda size: (size - 1) / size,
        wanted=lambda count, _, size: (
            _pattern(count) + np.repeat(np.arange(size, dtype=np.float32), count // size)
        ),
        in_parts=True,
    ),
    CollectiveOperation(
        name="broadcast",
        title="broadcast, fp32, in place, from rank 0",
        message="S on rank 0, and then on all in place",
        bus_factor=lambda _: 1.0,
        wanted=lambda count, *_: _pattern(count),
        from_first_start=True,
    ),
)
BY_NAME: dict[str, CollectiveOperation] = {operation.name: operation for operation in OPERATIONS}
