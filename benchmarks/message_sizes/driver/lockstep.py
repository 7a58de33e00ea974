"""Where ranks wait for each other before every call and collect their times, on one node (`nodes.py`: on several).

`Turns` are those of launches that run at the same time: while one measures, the ranks of all others sleep.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np

NUM_SPINS = 2000
MAX_CALLS = 400  # of an operation at a size, in all rounds

Times = np.ndarray[Any, np.dtype[np.float64]]


class StartLine(Protocol):
    """What the loop needs. Every method is collective."""

    rank: int
    size: int
    barrier: str  # how ranks wait, for the record

    def wait(self) -> None:
        """All ranks are here."""

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' values, on all of them."""

    def compare_clocks(self) -> float | None:
        """Seconds that the message took from one node to another and back; None on one node, which has one clock."""

    def gather(self, starts: list[float], seconds: list[float]) -> tuple[Times, Times] | None:
        """Starts and seconds, [rank][call], on the clock of rank 0, and on rank 0 only."""


class Lockstep:
    """A start line in shared memory, and room behind it for every rank's times.

    A cache line per rank counts arrivals; then [rank][start, seconds][call].
    """

    barrier = "shared"

    def __init__(self, path: str, rank: int, size: int, *, yields: bool) -> None:
        self.rank, self.size, self._yields = rank, size, yields
        num_bytes = 64 * size + 8 * size * 2 * MAX_CALLS
        with open(path, "r+b") as file:
            file.truncate(num_bytes)  # the same on all ranks
            self._map = mmap.mmap(file.fileno(), num_bytes)
        self._flags = np.frombuffer(self._map, np.int64, 8 * size).reshape(size, 8)[:, 0]
        self.times = np.frombuffer(self._map, np.float64, offset=64 * size).reshape(size, 2, MAX_CALLS)
        self._arrivals = 0
        self.wait()
        if rank == 0:
            os.unlink(path)  # whatever happens now, nothing is left behind

    def wait(self) -> None:
        self._arrivals += 1
        flags, arrivals = self._flags, self._arrivals
        flags[self.rank] = arrivals
        for other in range(self.size):
            num_polls = 0
            while flags[other] < arrivals:
                num_polls += 1
                if self._yields or num_polls > NUM_SPINS:
                    os.sched_yield()

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' values, on all of them."""
        self.times[self.rank, 1, 0] = seconds
        self.wait()
        largest = float(self.times[:, 1, 0].max())
        self.wait()
        return largest

    def compare_clocks(self) -> None:
        """One clock serves all ranks."""

    def gather(self, starts: list[float], seconds: list[float]) -> tuple[Times, Times] | None:
        """Starts and seconds, [rank][call]. On rank 0 only."""
        count = len(starts)
        self.times[self.rank, :, :count] = starts, seconds
        self.wait()
        mine = self.times[:, :, :count].copy()
        self.wait()
        return (mine[:, 0], mine[:, 1]) if self.rank == 0 else None


class Turns:
    """The turns of one launch on this rank. A launch that is alone always has its turn.

    Who started the launches gives the turns (`together.py`): it writes a byte per rank to the launch's FIFO `turn`, and
    reads from `waiting` a byte of rank 0 whenever all ranks have come to the end of their turn, or of their start.
    """

    def __init__(self, folder: Path | None, num_launches: int, lockstep: StartLine) -> None:
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
