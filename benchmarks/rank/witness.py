"""A second look at each window: its steps counted beside the loop, its time by another clock than the window's own.

What it sees is spooled with the window, and compared by whoever makes the record (`records.window_gates`).
"""

from __future__ import annotations

import time
from typing import Protocol

from dlscale.benchmarks.records.spool import Witnessed

CLOCK = time.CLOCK_BOOTTIME  # as fast as a window's own, read by another call


class _Steps(Protocol):
    def step(self) -> None: ...


class Witness:
    """Steps of a trainer, counted, and two intervals by another clock: one around a window's own, and one within it.

        around   |<------------------------------>|
        window     |<-------------------------->|
        within       |<---------------------->|

    So nothing need be assumed of how long a rank lost its core between two readings.
    """

    def __init__(self, trainer: _Steps) -> None:
        """Before the window's own first reading."""
        self._step = trainer.step
        self._num_steps = 0
        self._start = self._begun = self._ending = time.clock_gettime(CLOCK)

    def begin(self) -> None:
        self._begun = time.clock_gettime(CLOCK)

    def step(self) -> None:
        self._step()
        self._num_steps += 1

    def end(self) -> None:
        self._ending = time.clock_gettime(CLOCK)

    def seen(self) -> Witnessed:
        """What was seen, after the window's own last reading."""
        return Witnessed(
            num_steps=self._num_steps,
            start=self._start,
            begun=self._begun,
            ending=self._ending,
            end=time.clock_gettime(CLOCK),
        )
