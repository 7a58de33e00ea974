"""Turns of launches that run at the same time: while one measures, the ranks of all others sleep.

Who started them gives the turns, `together.py`: it writes a byte per rank to the launch's FIFO `turn`, and reads from
`waiting` a byte of rank 0 whenever all ranks have come to the end of their turn, or of their start.
"""

from __future__ import annotations

import os
import time

from .lockstep import StartLine


class Turns:
    """The turns of one launch on this rank. A launch that is alone always has its turn."""

    def __init__(self, folder: str, num_launches: int, lockstep: StartLine) -> None:
        self._lockstep = lockstep
        self._shared = num_launches > 1
        self._waited = 0.0
        if self._shared:
            self._turn = os.open(f"{folder}/turn", os.O_RDONLY | os.O_CLOEXEC)
            if lockstep.rank == 0:
                self._waiting = os.open(f"{folder}/waiting", os.O_WRONLY | os.O_CLOEXEC)

    def next(self) -> None:
        """Ends the turn of this launch, and waits for its next one. Collective."""
        if not self._shared:
            return
        self._lockstep.wait()
        begin = time.monotonic()
        if self._lockstep.rank == 0:
            os.write(self._waiting, b"x")
        os.read(self._turn, 1)
        self._waited += time.monotonic() - begin

    def seconds_since(self, begin: float) -> float:
        """Seconds of this launch's own since then, by the monotonic clock: without those in which it waited."""
        return time.monotonic() - begin - self._waited
