"""What a server does with a session's messages: one class per algorithm. Nothing here knows of MPI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dlscale.collectives.mpi_ps.messages import Floats, Kind, Message

Reply = Callable[[int, Message], None]
"""Sends a message to a worker; the message's memory is the caller's again at once."""


class ServedSession(Protocol):
    """A trainer's shard on one server."""

    def load(self, weights: Floats) -> None:
        """The first weights, of worker 0."""
        ...

    def push(self, worker: int, message: Message) -> None:
        """What a worker sends; its memory may be overwritten."""
        ...

    def fetch(self, worker: int) -> None:
        """A worker wants the weights."""
        ...

    def counts(self) -> dict[str, Any]:
        """`applied`: local batches of all workers that the shard, or the mean, has taken up; and more."""
        ...


class SynchronousSession:
    """Means of all workers' gradients: each worker gets them back, and updates its own copy of the weights.

    Summed are the gradients in the order of the workers, whoever comes first, so that a training can be repeated.
    """

    def __init__(self, *, num_elements: int, num_workers: int, number: int, reply: Reply) -> None:
        self._reply, self._number = reply, number
        self._first: Floats | None = None  # the weights that all begin with
        self._waiting: list[int] = []  # for them
        self._parts = [np.empty(num_elements, np.float32) for _ in range(num_workers)]
        self._given: set[int] = set()
        self._answer = Message.of_floats(num_elements)
        self._num_steps = 0

    def load(self, weights: Floats) -> None:
        """The first weights, for all workers that want them."""
        self._first = weights.copy()
        waiting, self._waiting = self._waiting, []
        for worker in waiting:
            self.fetch(worker)

    def fetch(self, worker: int) -> None:
        """Send the first weights, once they are here."""
        if self._first is None:
            self._waiting.append(worker)
            return
        self._answer.values[:] = self._first
        self._reply(worker, self._answer.address(Kind.VALUES, session=self._number, step=self._num_steps))

    def push(self, worker: int, message: Message) -> None:
        """A worker's gradients; with the last of a step the mean goes to all."""
        if worker in self._given:
            raise ValueError(f"worker {worker} sent gradients twice in step {self._num_steps}")
        self._given.add(worker)
        np.copyto(self._parts[worker], message.values)
        if len(self._given) < len(self._parts):
            return
        mean = self._answer.values
        np.copyto(mean, self._parts[0])
        for part in self._parts[1:]:
            mean += part
        mean /= len(self._parts)
        self._given.clear()
        self._num_steps += 1
        self._answer.address(Kind.VALUES, session=self._number, step=self._num_steps)
        for other in range(len(self._parts)):
            self._reply(other, self._answer)

    def counts(self) -> dict[str, Any]:
        """Local batches in the means so far."""
        return {"applied": self._num_steps * len(self._parts)}
