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
    """Steps of a trainer from now until `seen`, counted and timed."""

    def __init__(self, trainer: _Steps) -> None:
        self._step = trainer.step
        self._num_steps = 0
        self._start = time.clock_gettime(CLOCK)

    def step(self) -> None:
        """Let the trainer take a step."""
        self._step()
        self._num_steps += 1

    def seen(self) -> Witnessed:
        """What was seen so far."""
        return Witnessed(self._num_steps, self._start, time.clock_gettime(CLOCK) - self._start)
