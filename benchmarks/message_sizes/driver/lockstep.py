"""Where ranks wait for each other before every call, and where their times are collected: on one node.

`nodes.py` has the same for several.
"""

from __future__ import annotations

import math
import mmap
import os
import time
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

    def round_trip(self) -> float:
        """Seconds that a flag takes from one rank to another and back."""

    def gather(self, starts: list[float], seconds: list[float]) -> tuple[Times, Times] | None:
        """Starts and seconds, [rank][call], on the clock of rank 0, and on rank 0 only."""


class Lockstep:
    """A start line in shared memory, and room behind it for every rank's times.

    A cache line per rank counts arrivals, two more are for `round_trip`; then [rank][start, seconds][call].
    """

    barrier = "shared"

    def __init__(self, path: str, rank: int, size: int, *, yields: bool) -> None:
        self.rank, self.size, self._yields = rank, size, yields
        num_bytes = 64 * (size + 2) + 8 * size * 2 * MAX_CALLS
        with open(path, "r+b") as file:
            file.truncate(num_bytes)  # the same on all ranks
            self._map = mmap.mmap(file.fileno(), num_bytes)
        self._flags = np.frombuffer(self._map, np.int64, 8 * (size + 2)).reshape(size + 2, 8)[:, 0]
        times = np.frombuffer(self._map, np.float64, offset=64 * (size + 2))
        self.times = times.reshape(size, 2, MAX_CALLS)
        self._arrivals = self._bounces = 0
        self.wait()
        if rank == 0:
            os.unlink(path)  # whatever happens now, nothing is left behind

    def wait(self) -> None:
        """All ranks are here."""
        self._arrivals += 1
        self._flags[self.rank] = self._arrivals
        for other in range(self.size):
            self._poll(other, self._arrivals)

    def _poll(self, place: int, least: int) -> None:
        flags, num_polls = self._flags, 0
        while flags[place] < least:
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

    def round_trip(self, runs: int = 5, bounces: int = 100) -> float:
        """The best mean of seconds that a flag takes from rank 0 to rank 1 and back."""
        best = math.inf if self.size > 1 else 0.0
        for _ in range(runs if self.size > 1 else 0):
            self.wait()
            begin = time.perf_counter()
            for _ in range(bounces if self.rank < 2 else 0):
                self._bounces += 1
                if self.rank == 1:
                    self._poll(self.size, self._bounces)
                self._flags[self.size + self.rank] = self._bounces
                if self.rank == 0:
                    self._poll(self.size + 1, self._bounces)
            best = min(best, time.perf_counter() - begin)
        self.wait()
        return best / bounces

    def gather(self, starts: list[float], seconds: list[float]) -> tuple[Times, Times] | None:
        """Starts and seconds, [rank][call]; one clock serves all ranks. On rank 0 only."""
        count = len(starts)
        self.times[self.rank, :, :count] = starts, seconds
        self.wait()
        mine = self.times[:, :, :count].copy()
        self.wait()
        return (mine[:, 0], mine[:, 1]) if self.rank == 0 else None
