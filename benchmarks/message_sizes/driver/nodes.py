"""Where ranks of several nodes wait for each other: in shared memory on each node, by MPI between nodes.

Ranks lie in blocks, and the first rank of each block speaks for its node. Each node has a clock of its own: the first
node asks every other for the time, and takes the answer that came back soonest as read half-way. Starts are told on its
clock, with half of that time as uncertainty.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from dlscale.benchmarks.message_sizes.driver.lockstep import Lockstep, Times

NUM_PINGS = 100


class NodesLockstep:
    """A start line over `size` ranks, `ranks_per_node` on each node. `path` as in `Lockstep`."""

    barrier = "shared memory on a node, MPI between nodes"

    def __init__(
        self, path: str, rank: int, size: int, *, ranks_per_node: int, thread_level: str, yields: bool
    ) -> None:
        import mpi4py

        mpi4py.rc.thread_level = thread_level
        from mpi4py import MPI

        self.rank, self.size, self._largest = rank, size, MPI.MAX
        node, local_rank = divmod(rank, ranks_per_node)
        local_size = min(ranks_per_node, size - node * ranks_per_node)
        own = f"{path}-{node}"
        if local_rank == 0:
            os.close(os.open(own, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        MPI.COMM_WORLD.Barrier()
        if not os.path.exists(own):
            raise FileNotFoundError(
                f"no flags of node {node} here: ranks do not lie {ranks_per_node} to a node"
            )
        self._local = Lockstep(own, local_rank, local_size, yields=yields)
        # The first ranks of all nodes, in order; None on others.
        firsts = MPI.COMM_WORLD.Split(0 if local_rank == 0 else MPI.UNDEFINED, rank)
        self._nodes: Any = firsts if local_rank == 0 else None
        self._offsets = [0.0] * -(
            -size // ranks_per_node
        )  # of each node's clock to the first one's, in seconds

    def wait(self) -> None:
        self._local.wait()
        if self._nodes:
            self._nodes.Barrier()
        self._local.wait()

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' values, on all of them."""
        largest = self._local.slowest(seconds)
        if self._nodes:
            self._local.times[0, 0, 0] = self._nodes.allreduce(largest, self._largest)
        self._local.wait()
        largest = float(self._local.times[0, 0, 0])
        self._local.wait()
        return largest

    def compare_clocks(self) -> float:
        """Seconds that a message takes from the first node to the second and back; all clocks are compared."""
        self.wait()
        trips = [0.0]
        for node in range(1, self._nodes.size if self._nodes else 0):
            if self._nodes.rank == 0:
                shortest, self._offsets[node] = min(self._ping(node) for _ in range(NUM_PINGS))
                trips.append(shortest)
            elif self._nodes.rank == node:
                self._answer()
        self.wait()
        return trips[min(1, len(trips) - 1)]

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
        mine = self._local.gather(starts, seconds)
        parts = self._nodes.gather(np.stack(mine)) if mine is not None else None
        if parts is None:
            return None
        for part, offset in zip(parts, self._offsets, strict=True):
            part[0] -= offset
        whole = np.concatenate(parts, axis=1)
        return whole[0], whole[1]
