"""Where ranks wait for each other before every call and collect their times, and the turns of launches.

Ranks of a node meet in shared memory. Of several nodes, whose ranks lie in blocks, the first rank of each meets the
others by MPI. Each node has a clock of its own: the first node asks every other for the time, and takes the answer that
came back soonest as read half-way.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

NUM_SPINS = 2000
NUM_PINGS = 100
MAX_CALLS = 400  # of an operation at a size, in all rounds

Times = np.ndarray[Any, np.dtype[np.float64]]


class StartLine:
    """A start line of `size` ranks, `ranks_per_node` on each node. Every method is collective.

    The file at `path` lies in memory: a cache line per rank counts arrivals; behind them [rank][start, seconds][call].
    On several nodes each has such a file, and `world` is mpi4py's communicator of all ranks.
    """

    def __init__(
        self, path: str, rank: int, size: int, *, ranks_per_node: int, yields: bool, world: Any = None
    ) -> None:
        self.rank, self.size, self._yields = rank, size, yields
        self._nodes: Any = (
            None  # communicator of the nodes' first ranks, on these and only if there are several
        )
        self._offsets = [0.0]  # of each node's clock to the first one's, in seconds
        node, self._local_rank = divmod(rank, ranks_per_node)
        local_size = min(ranks_per_node, size - node * ranks_per_node)
        self.barrier = "shared"
        if world is not None:
            path = f"{path}-{node}"
            self._join_nodes(world, path, ranks_per_node)
        num_bytes = 64 * local_size + 8 * local_size * 2 * MAX_CALLS
        with open(path, "r+b") as file:
            file.truncate(num_bytes)  # the same on all ranks
            self._map = mmap.mmap(file.fileno(), num_bytes)
        self._flags = np.frombuffer(self._map, np.int64, 8 * local_size).reshape(local_size, 8)[:, 0]
        times = np.frombuffer(self._map, np.float64, offset=64 * local_size)
        self._times = times.reshape(local_size, 2, MAX_CALLS)
        self._arrivals = 0
        self._wait_on_node()
        if self._local_rank == 0:
            os.unlink(path)  # whatever happens now, nothing is left behind

    def _join_nodes(self, world: Any, path: str, ranks_per_node: int) -> None:
        self.barrier = "shared memory on a node, MPI between nodes"
        if self._local_rank == 0:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        world.Barrier()
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"no flags of this rank's node: ranks do not lie {ranks_per_node} to a node"
            )
        firsts = world.Split(min(self._local_rank, 1), self.rank)
        if self._local_rank == 0:
            self._nodes, self._offsets = firsts, [0.0] * firsts.size

    def wait(self) -> None:
        """All ranks are here."""
        self._wait_on_node()
        if self.size > len(self._flags):
            if self._nodes:
                self._nodes.Barrier()
            self._wait_on_node()

    def _wait_on_node(self) -> None:
        self._arrivals += 1
        flags, arrivals = self._flags, self._arrivals
        flags[self._local_rank] = arrivals
        for other in range(len(flags)):
            num_polls = 0
            while flags[other] < arrivals:
                num_polls += 1
                if self._yields or num_polls > NUM_SPINS:
                    os.sched_yield()

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' values, on all of them."""
        self._times[self._local_rank, 1, 0] = seconds
        self._wait_on_node()
        if self._nodes:
            self._times[0, 0, 0] = max(self._nodes.allgather(float(self._times[:, 1, 0].max())))
        elif self._local_rank == 0:
            self._times[0, 0, 0] = self._times[:, 1, 0].max()
        self._wait_on_node()
        largest = float(self._times[0, 0, 0])
        self._wait_on_node()
        return largest

    def compare_clocks(self) -> float | None:
        """Seconds that a message took from the first node to the second and back, on rank 0; None on one node."""
        if self.size == len(self._flags):
            return None
        self.wait()
        trips = []
        for node in range(1, self._nodes.size if self._nodes else 0):
            if self._nodes.rank == 0:
                shortest, self._offsets[node] = min(self._ping(node) for _ in range(NUM_PINGS))
                trips.append(shortest)
            elif self._nodes.rank == node:
                self._answer()
        self.wait()
        return trips[0] if trips else None

    def _ping(self, node: int) -> tuple[float, float]:
        """Seconds of a round trip, and by how much the other clock is ahead."""
        theirs = np.zeros(1)
        begin = time.perf_counter()
        self._nodes.Send(theirs, node)
        self._nodes.Recv(theirs, node)
        end = time.perf_counter()
        return end - begin, float(theirs[0]) - (begin + end) / 2

    def _answer(self) -> None:
        clock = np.zeros(1)
        for _ in range(NUM_PINGS):
            self._nodes.Recv(clock, 0)
            clock[0] = time.perf_counter()
            self._nodes.Send(clock, 0)

    def gather(self, starts: list[float], seconds: list[float]) -> tuple[Times, Times] | None:
        """Starts and seconds, [rank][call], on the clock of rank 0, and on rank 0 only."""
        count = len(starts)
        self._times[self._local_rank, :, :count] = starts, seconds
        self._wait_on_node()
        parts = [self._times[:, :, :count].copy()]  # of each node
        self._wait_on_node()
        if self._nodes:
            parts = self._nodes.gather(parts[0]) or []
        if self.rank != 0:
            return None
        for part, offset in zip(parts, self._offsets, strict=True):
            part[:, 0] -= offset
        whole = np.concatenate(parts)
        return whole[:, 0], whole[:, 1]


class Turns:
    """The turns of one launch on this rank. A launch that is alone always has its turn.

    Who started the launches gives the turns (`launch.py`): it writes a byte per rank to the launch's FIFO `turn`, and
    reads from `waiting` a byte of rank 0 whenever all ranks have come to the end of their turn, or of their start.
    """

    def __init__(self, folder: Path, num_launches: int, line: StartLine) -> None:
        self._line = line
        self._shared = num_launches > 1
        self._waited = 0.0
        if self._shared:
            self._turn = os.open(f"{folder}/turn", os.O_RDONLY | os.O_CLOEXEC)
            if line.rank == 0:
                self._waiting = os.open(f"{folder}/waiting", os.O_WRONLY | os.O_CLOEXEC)

    def next(self) -> None:
        """Ends the turn of this launch, and waits for its next one. Collective."""
        if not self._shared:
            return
        self._line.wait()
        begin = time.monotonic()
        if self._line.rank == 0:
            os.write(self._waiting, b"x")
        os.read(self._turn, 1)
        self._waited += time.monotonic() - begin

    def seconds_since(self, begin: float) -> float:
        """Seconds of this launch's own since then, by the monotonic clock: without those in which it waited."""
        return time.monotonic() - begin - self._waited
