"""The collective operations: what each is given, what it must give, and how large a message of so many bytes is.

Sizes are those of nccl-tests. With P ranks and a message of S bytes:

    allreduce       in place: each rank has S bytes, and gets their sum
    reduce_scatter  each rank has S bytes, and gets its part of their sum, S / P, in other memory
    allgather       each rank has a part of S / P, and gets all parts, S, around its own
    broadcast       in place: rank 0 has S bytes, and all others get them

Where parts are cut, a message is as many whole elements per rank as fit into S.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST = "allreduce", "reduce_scatter", "allgather", "broadcast"
ITEM_BYTES = 4
PATTERN = 1021  # a prime: parts begin at different places of it
UNSET = -1.0

Array = np.ndarray[Any, np.dtype[Any]]


def num_elements(collective: str, message_bytes: int, size: int) -> int:
    """Elements of a message on `size` ranks."""
    count = message_bytes // ITEM_BYTES
    return count - count % size if collective in (REDUCE_SCATTER, ALLGATHER) else count


def part(collective_elements: int, rank: int, size: int) -> slice:
    """A rank's part of a message."""
    each = collective_elements // size
    return slice(rank * each, (rank + 1) * each)


def given(collective: str, count: int, rank: int, size: int) -> Array:
    """What a rank begins with: different on every rank and index, and exact in float32.

    A dropped or doubled part cannot cancel out.
    """
    values = np.resize(np.arange(PATTERN, dtype=np.float32), count) + np.float32(rank)
    if collective == ALLGATHER:
        own = part(count, rank, size)
        values[: own.start] = values[own.stop :] = UNSET
    return values


def counted(collective: str, starts: Array, seconds: Array) -> Array:
    """What a call took on each rank, [rank][call], from starts on a common clock and from what each rank took itself.

    The root of a broadcast may be done before another rank has started, whose own time then misses what was sent
    before: broadcasts count from the first rank's start. No other operation can end before all have started.
    """
    return seconds + starts - starts.min(axis=0) if collective == BROADCAST else seconds


def wanted(collective: str, count: int, rank: int, size: int) -> Array:
    """What a rank must end with."""
    values = np.resize(np.arange(PATTERN, dtype=np.float32), count)
    if collective == ALLGATHER:
        for other in range(size):
            values[part(count, other, size)] += other
    elif collective != BROADCAST:
        values *= size
        values += size * (size - 1) / 2
    return values[part(count, rank, size)] if collective == REDUCE_SCATTER else values
