"""What a server does with a session's messages. Nothing here knows of transports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from dlscale.collectives.algorithms.downpour import Rule
from dlscale.collectives.servers.links import Links
from dlscale.collectives.servers.messages import Floats, Kind, RefusedError, Rules

Reply = Callable[[Collection[int], Floats, int], None]
"""Sends a copy of values to workers, and the number of updates that they have taken up."""


class Session:
    """A trainer's shard on one server: weights that workers fetch, once worker 0 has given them."""

    def __init__(self, rules: Rules, reply: Reply) -> None:
        self.rules, self._reply = rules, reply
        self._weights: Floats = np.empty(rules.num_elements, np.float32)
        self._is_loaded = False
        self._waiting: list[int] = []  # workers that want what is not there yet
        self._num_updates = 0

    def load(self, weights: Floats) -> None:
        """The first weights, for all workers that want them."""
        np.copyto(self._weights, weights)
        self._is_loaded = True
        waiting, self._waiting = self._waiting, []
        for worker in waiting:
            self.fetch(worker)

    def fetch(self, worker: int) -> None:
        if self._is_loaded:
            self._reply([worker], self._weights, self._num_updates)
        else:
            self._waiting.append(worker)

    def push(self, worker: int, values: Floats, *, step: int, count: int) -> None:
        """What a worker sends, which is the session's from now on; `step` and `count` are those of the message."""
        raise NotImplementedError

    def kept(self, worker: int) -> None:
        """The weights, and behind them what the algorithm keeps."""
        self._reply([worker], self._weights, self._num_updates)

    def counts(self) -> dict[str, Any]:
        """`applied`: local batches of all workers that the shard, or the mean, has taken up; and more."""
        raise NotImplementedError

    def goes_on(self) -> bool:
        """Whether the others can go on without a worker: nobody waits for others but for the first weights."""
        return self._is_loaded

    def end(self) -> None:
        """All workers have left."""


class Synchronous(Session):
    """Means of workers' gradients: each worker gets them back, and updates its own copy of the weights.

    Summed are the gradients in the order of the workers, whoever comes first, so that a training can be repeated.
    """

    def __init__(self, rules: Rules, reply: Reply, *, num_workers: int) -> None:
        super().__init__(rules, reply)
        self._num_workers = num_workers
        self._given: dict[int, Floats] = {}  # gradients of this step

    def push(self, worker: int, values: Floats, *, step: int, count: int) -> None:  # noqa: ARG002
        """A worker's gradients; with the last the mean goes to all."""
        if worker in self._given:
            raise RefusedError(f"worker {worker} sent gradients twice in step {step}")
        self._given[worker] = values
        if len(self._given) < self._num_workers:
            return
        mean = self._given[0]
        for other in range(1, self._num_workers):
            mean += self._given[other]
        mean /= self._num_workers
        self._given = {}
        self._num_updates += 1
        self._reply(range(self._num_workers), mean, self._num_updates)

    def counts(self) -> dict[str, Any]:
        """Local batches in the means so far."""
        return {"applied": self._num_updates * self._num_workers}

    def goes_on(self) -> bool:
        """A mean is that of all workers."""
        return False


class Stale(Session):
    """Weights that every push changes as it comes, by the algorithm of the session's rules."""

    def __init__(self, rules: Rules, reply: Reply, *, answers: bool = False) -> None:
        """With `answers` the weights are the answer to a push where the algorithm has none: masters need it."""
        super().__init__(rules, reply)
        self._answers = answers or rules.algorithm == "asynchronous"
        self._rule = Rule(rules.optimizer, rules.num_elements * self._is_downpour, momentum=rules.momentum)
        self._applied = 0
        self._staleness: Counter[int] = Counter()

    @property
    def _is_downpour(self) -> bool:
        return self.rules.algorithm == "downpour"

    def push(self, worker: int, values: Floats, *, step: int, count: int) -> None:
        """What is made of `count` local batches and weights that had taken up `step` updates."""
        self._staleness[self._num_updates - step] += 1
        self._num_updates += 1
        self._applied += count
        if self._is_downpour:
            self._rule.apply(self._weights, values, self.rules.rate)
        else:
            if self.rules.algorithm == "easgd":
                # With its part of the distance, which it knows, the worker is where the next update finds the centre.
                self._reply([worker], self._weights, self._num_updates)
                elastic_force(values, self._weights, np.float32(self.rules.share))
            self._weights += values
        if self._answers:
            self._reply([worker], self._weights, self._num_updates)

    def kept(self, worker: int) -> None:
        """The weights, and the arrays of Downpour's rule."""
        self._reply([worker], np.concatenate([self._weights, *self._rule.kept]), self._num_updates)

    def counts(self) -> dict[str, Any]:
        """Local batches and updates, and how many pushes had missed how many updates."""
        staleness = {str(steps): pushes for steps, pushes in sorted(self._staleness.items())}
        return {"applied": self._applied, "updates": self._num_updates, "staleness": staleness}


class Relay(Session):
    """A session on a master. Updates and their staleness are counted by the super-master.

    A worker that has pushed gets the weights that the super-master answered last, to whichever worker's push; one
    that has not, as in its first step, gets the super-master's weights of now.
    """

    def __init__(self, rules: Rules, reply: Reply, parent: Links, *, is_first: bool) -> None:
        """`is_first`: the weights that the session begins with come through this master."""
        super().__init__(rules, reply)
        self._parent, self._is_loaded = parent, not is_first
        self._pushed: set[int] = set()  # workers that have not fetched since

    def load(self, weights: Floats) -> None:
        self._parent.send(Kind.LOAD, weights)
        super().load(weights)

    def push(self, worker: int, values: Floats, *, step: int, count: int) -> None:
        """Hand gradients on, computed from weights that had taken up `step` of the super-master's updates."""
        self._parent.steps = [step]
        self._parent.push(values, count=count)
        self._parent.collect(self._weights)
        self._pushed.add(worker)

    def fetch(self, worker: int) -> None:
        if self._is_loaded and worker not in self._pushed:
            self._parent.fetch(self._weights)
        self._pushed.discard(worker)
        self._num_updates = self._parent.steps[0]
        super().fetch(worker)

    def kept(self, worker: int) -> None:
        arrays, num_updates = self._parent.kept()
        self._reply([worker], np.concatenate(arrays), num_updates)

    def counts(self) -> dict[str, Any]:
        return self._parent.counts()[0]

    def end(self) -> None:
        self._parent.end()


def elastic_force(weights: Floats, centre: Floats, share: np.float32) -> None:
    """In place: weights x become share (x - centre), the same bits on worker and server."""
    weights -= centre
    weights *= share
