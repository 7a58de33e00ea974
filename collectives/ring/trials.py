"""What the tuner's questions have in common: sizes, buffers, a share of the time, and a record of the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.ring.lockstep import MIN_ROUNDS, NUM_WARM_UPS, Lockstep, Way
from dlscale.collectives.ring.plan import Timing

Table = dict[int, dict[str, float]]
Tell = Callable[[str], None]

PATIENCE = 4.0  # times its share, a size may take for its fewest rounds


def sizes(first: int, last: int, *, max_bytes: int) -> list[int]:
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
        ways: Callable[[int], Mapping[str, Way]],
        *,
        default: Callable[[int], str],
    ) -> Table:
        """Seconds of every way for every size; sizes that would take too long are left out, from the first of them.

        `default`: the way of a size without a plan.
        """
        table: Table = {}
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
