"""Which rank sends to which: workers to the servers, or to masters that stand between them and one server over all.

Workers are ranks 0 .. P - 1, servers P .. P + S - 1. With M masters the first server holds the weights, as the
super-master, and master m, one of the others, relays for workers P m / M .. P (m + 1) / M - 1. So do those of MPI-Learn
(D. Anderson, J.-R. Vlimant, M. Spiropulu, *An MPI-Based Python Framework for Distributed Training with Keras*,
arXiv:1712.05878): a master hands each update on and gets the weights back, which its workers then have from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from dlscale.collectives.mpi_ps.messages import Floats
from dlscale.collectives.mpi_ps.sessions import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Workers and servers of a launch. `num_masters` 0: workers send to the servers themselves."""

    num_workers: int
    num_servers: int
    num_masters: int = 0

    def is_master(self, rank: int) -> bool:
        """Whether that rank relays."""
        return self.num_masters > 0 and rank > self.num_workers

    def parents(self, rank: int) -> list[int]:
        """Ranks that a worker or a master sends to, in the order of the shards that they hold."""
        if not self.num_masters:
            return list(range(self.num_workers, self.num_workers + self.num_servers))
        if self.is_master(rank):
            return [self.num_workers]
        return [master for master in self._masters if rank in self.children(master)]

    def children(self, rank: int) -> set[int]:
        """Ranks that this server takes messages from."""
        if not self.num_masters:
            return set(range(self.num_workers))
        if not self.is_master(rank):
            return set(self._masters)
        place = rank - self.num_workers - 1
        ends = [self.num_workers * end // self.num_masters for end in (place, place + 1)]
        return set(range(*ends))

    def name(self, rank: int) -> str:
        """What messages to people call it."""
        if rank < self.num_workers:
            return f"worker {rank}"
        if self.is_master(rank):
            return f"master {rank - self.num_workers - 1}"
        return "the super-master" if self.num_masters else f"server {rank - self.num_workers}"

    @property
    def _masters(self) -> range:
        first = self.num_workers + 1
        return range(first, first + self.num_masters)


class Parent(Protocol):
    """What a master needs of its connection to the super-master (`links.ServerLinks`)."""

    steps: list[int]

    def load(self, values: Floats) -> None: ...
    def push(self, values: Floats, *, count: int) -> None: ...
    def collect(self, into: Floats) -> None: ...
    def fetch(self, into: Floats) -> None: ...
    def look(self, into: Floats) -> None: ...
    def kept(self) -> tuple[list[Floats], int]: ...
    def counts(self) -> list[dict[str, Any]]: ...
    def end(self) -> None: ...


class RelaySession:
    """A session on a master (`ServedSession`). Updates and their staleness are counted by the super-master.

    A worker that has pushed gets the weights that the super-master answered last, to whichever worker's push; one
    that has not, as in its first step, gets the super-master's weights of now.
    """

    def __init__(self, *, num_elements: int, reply: Reply, parent: Parent, is_first: bool) -> None:
        """`is_first`: the weights that the session begins with come through this master."""
        self._reply, self._parent, self._awaits_weights = reply, parent, is_first
        self._weights, self._seen = np.empty(num_elements, np.float32), np.empty(num_elements, np.float32)
        self._pushed: set[int] = set()  # workers that have not fetched since
        self._waiting: list[Callable[[], None]] = []

    def load(self, weights: Floats) -> None:
        self._parent.load(weights)
        self._awaits_weights = False
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer()

    def push(self, worker: int, values: Floats, *, step: int, count: int) -> None:
        """Hand gradients on, computed from weights that had taken up `step` of the super-master's updates."""
        self._parent.steps = [step]
        self._parent.push(values, count=count)
        self._parent.collect(self._weights)
        self._pushed.add(worker)

    def fetch(self, worker: int) -> None:
        if self._awaits_weights:
            self._waiting.append(partial(self.fetch, worker))
            return
        if worker not in self._pushed:
            self._parent.fetch(self._weights)
        self._pushed.discard(worker)
        self._reply(worker, self._weights, self._parent.steps[0])

    def look(self, worker: int) -> None:
        if self._awaits_weights:
            self._waiting.append(partial(self.look, worker))
            return
        self._parent.look(self._seen)
        self._reply(worker, self._seen, self._parent.steps[0])

    def kept(self, worker: int) -> None:
        arrays, num_updates = self._parent.kept()
        self._reply(worker, np.concatenate(arrays), num_updates)

    def without(self, worker: int) -> bool:
        """Nobody waits for others but for the first weights."""
        self._pushed.discard(worker)
        return not self._awaits_weights

    def counts(self) -> dict[str, Any]:
        return self._parent.counts()[0]

    def end(self) -> None:
        self._parent.end()
