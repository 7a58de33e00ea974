"""What a server does with a session's messages: one class per algorithm. Nothing here knows of MPI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dlscale.collectives.algorithms.downpour import RULES
from dlscale.collectives.mpi_ps.messages import Floats

Reply = Callable[[int, Floats, int], None]
"""Sends a copy of values to a worker, and the number of updates that they have taken up."""


class ServedSession(Protocol):
    """A trainer's shard on one server. `step` and `count` are those of the message."""

    def load(self, weights: Floats) -> None:
        """The first weights, of worker 0; the memory is the caller's again."""

    def push(self, worker: int, values: Floats, *, step: int, count: int) -> None:
        """What a worker sends; its memory may be overwritten until the call returns."""

    def fetch(self, worker: int) -> None:
        """A worker wants the weights."""

    def look(self, worker: int) -> None:
        """A worker wants the weights of now, and will not train on them."""

    def kept(self, worker: int) -> None:
        """A worker wants the weights, and behind them what the algorithm keeps."""

    def without(self, worker: int) -> bool:
        """A worker is gone; whether the others can go on without it."""

    def counts(self) -> dict[str, Any]:
        """`applied`: local batches of all workers that the shard, or the mean, has taken up; and more."""

    def end(self) -> None:
        """All workers have left."""


class Shard:
    """Weights that workers fetch, once worker 0 has given them."""

    def __init__(self, *, num_elements: int, reply: Reply) -> None:
        self._reply = reply
        self._weights: Floats = np.empty(num_elements, np.float32)
        self._loaded = False
        self._waiting: list[int] = []  # workers that want what is not there yet
        self._num_updates = 0

    def load(self, weights: Floats) -> None:
        """The first weights, for all workers that want them."""
        np.copyto(self._weights, weights)
        self._loaded = True
        waiting, self._waiting = self._waiting, []
        for worker in waiting:
            self.fetch(worker)

    def fetch(self, worker: int) -> None:
        if self._loaded:
            self._reply(worker, self._weights, self._num_updates)
        else:
            self._waiting.append(worker)

    def look(self, worker: int) -> None:
        self.fetch(worker)

    def kept(self, worker: int) -> None:
        self._reply(worker, self._weights, self._num_updates)

    def without(self, worker: int) -> bool:  # noqa: ARG002
        """Nobody waits for others but for the first weights."""
        return self._loaded

    def end(self) -> None:
        """Nothing is left to do."""


class SynchronousSession(Shard):
    """Means of workers' gradients: each worker gets them back, and updates its own copy of the weights.

    Summed are the gradients in the order of the workers, whoever comes first, so that a training can be repeated.
    """

    def __init__(self, *, num_elements: int, num_workers: int, reply: Reply) -> None:
        super().__init__(num_elements=num_elements, reply=reply)
        self._parts = [np.empty(num_elements, np.float32) for _ in range(num_workers)]
        self._given: set[int] = set()  # workers whose gradients of this step are there

    def push(self, worker: int, values: Floats, *, step: int, count: int) -> None:  # noqa: ARG002
        """A worker's gradients; with the last the mean goes to all."""
        if worker in self._given:
            raise ValueError(f"worker {worker} sent gradients twice in step {step}")
        self._given.add(worker)
        np.copyto(self._parts[worker], values)
        if len(self._given) < len(self._parts):
            return
        mean = self._parts[0]  # written anew in the next step
        for part in self._parts[1:]:
            mean += part
        mean /= len(self._parts)
        self._given.clear()
        self._num_updates += 1
        for other in range(len(self._parts)):
            self._reply(other, mean, self._num_updates)

    def without(self, worker: int) -> bool:  # noqa: ARG002
        """A mean is that of all workers."""
        return False

    def counts(self) -> dict[str, Any]:
        """Local batches in the means so far."""
        return {"applied": self._num_updates * len(self._parts)}


class ElasticSession(Shard):
    """The centre of elastic averaging, which moves towards each worker that comes (`algorithms.easgd`)."""

    def __init__(self, *, num_elements: int, reply: Reply, share: float) -> None:
        super().__init__(num_elements=num_elements, reply=reply)
        self._share = np.float32(share)
        self._applied = 0
        self._staleness: Counter[int] = Counter()

    def push(self, worker: int, values: Floats, *, step: int, count: int) -> None:
        """A worker's weights after `count` further local batches; it gets the centre of before the move."""
        # With its part of the distance, which it knows, the worker is where the next update finds the centre.
        self._reply(worker, self._weights, self._num_updates + 1)
        self._staleness[self._num_updates - step] += 1
        elastic_force(values, self._weights, self._share)
        self._weights += values
        self._num_updates += 1
        self._applied += count

    def counts(self) -> dict[str, Any]:
        """`staleness` of an exchange: those of others since the worker's last one."""
        return {
            "applied": self._applied,
            "updates": self._num_updates,
            "staleness": _as_text(self._staleness),
        }


class DownpourSession(Shard):
    """Weights that every push updates (`algorithms.downpour`)."""

    def __init__(
        self,
        *,
        num_elements: int,
        reply: Reply,
        optimizer: str,
        rate: float,
        momentum: float,
        divide_by_staleness: bool,
        answers: bool = False,
    ) -> None:
        """With `answers` who has pushed gets the weights, unasked."""
        super().__init__(num_elements=num_elements, reply=reply)
        self._rule = RULES[optimizer](num_elements, momentum=momentum)
        self._rate, self._divides = rate, divide_by_staleness
        self._answers = answers
        self._applied = 0
        self._staleness: Counter[int] = Counter()

    def push(self, worker: int, values: Floats, *, step: int, count: int) -> None:
        """Gradients of `count` local batches, accrued from weights that had taken up `step` updates."""
        staleness = self._num_updates - step
        self._staleness[staleness] += 1
        divisor = max(staleness, 1) if self._divides else 1
        self._rule.apply(self._weights, values, self._rate / divisor)
        self._num_updates += 1
        self._applied += count
        if self._answers:
            self._reply(worker, self._weights, self._num_updates)

    def kept(self, worker: int) -> None:
        """The weights, and the rule's arrays."""
        self._reply(worker, np.concatenate([self._weights, *self._rule.kept()]), self._num_updates)

    def counts(self) -> dict[str, Any]:
        """Local batches and updates, and how many pushes had which staleness."""
        return {
            "applied": self._applied,
            "updates": self._num_updates,
            "staleness": _as_text(self._staleness),
        }


def elastic_force(weights: Floats, centre: Floats, share: np.float32) -> None:
    """In place: weights x become share (x - centre), the same bits on worker and server."""
    weights -= centre
    weights *= share


def _as_text(histogram: Counter[int]) -> dict[str, int]:
    return {str(steps): pushes for steps, pushes in sorted(histogram.items())}
