"""What trains a replica over servers, one class per algorithm; the replica may be of any framework."""

from __future__ import annotations

from collections import Counter

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.collectives.algorithms import downpour
from dlscale.collectives.backend import BUCKET_SIZES
from dlscale.collectives.mpi_ps.links import ServerLinks
from dlscale.collectives.mpi_ps.messages import FlatLayout
from dlscale.collectives.training.replica_trainer import ReplicaTrainer
from dlscale.models.workload import Replica, State, Weights

Setting = str | int | float | bool

KEPT_BY_SERVERS = (
    "mpi_ps has no checkpoints: its servers keep part of a training; leave out --checkpoint-every"
)


class ServedTrainer(ReplicaTrainer):
    """What all have in common (`CountingTrainer`)."""

    asynchronous = False

    def __init__(self, replica: Replica, layout: FlatLayout, links: ServerLinks) -> None:
        super().__init__(replica)
        self._layout, self._links = layout, links
        self._flat = np.empty(layout.num_elements, np.float32)

    def synchronize(self) -> None:
        """A step is done when it returns."""

    def num_applied(self) -> int:
        """Local batches, of all workers, that server 0 has taken up."""
        return int(self._links.counts()[0]["applied"])

    def state(self) -> State:
        """Raises UsageError: the servers keep part of it."""
        raise UsageError(KEPT_BY_SERVERS)

    def restore(self, state: State) -> None:  # noqa: ARG002
        """Raises UsageError: the servers keep part of it."""
        raise UsageError(KEPT_BY_SERVERS)

    def settings(self) -> dict[str, Setting]:
        """How the weights are cut, and that nothing travels while gradients are computed."""
        sizes = self._links.shard_bytes()
        return {
            "overlap": False,
            "num_servers": len(sizes),
            "asynchronous": self.asynchronous,
            BUCKET_SIZES: ",".join(map(str, sizes)),
        }

    def close(self) -> None:
        """Leave the session."""
        self._links.end()


class SynchronousTrainer(ServedTrainer):
    """Updates its own weights by the mean of all workers' gradients, which servers form."""

    def step(self) -> None:
        """Train on one local batch."""
        self._layout.pack(self._replica.gradients(), self._flat)
        self._losses = self._replica.losses()
        self._links.push(self._flat, count=1)
        self._links.collect(self._flat)
        self._replica.apply(self._layout.unpack(self._flat))


class DownpourTrainer(ServedTrainer):
    """Fetches weights, accrues gradients and pushes them (`algorithms.downpour`)."""

    asynchronous = True

    def __init__(
        self,
        replica: Replica,
        layout: FlatLayout,
        links: ServerLinks,
        options: downpour.Options,
        *,
        rate: float,
    ) -> None:
        super().__init__(replica, layout, links)
        self._fetch_every, self._push_every = options.fetch_every, options.push_every
        self._rate = np.float32(rate)
        self._accrued = np.zeros(layout.num_elements, np.float32)
        self._gradient = np.empty(layout.num_elements, np.float32)
        self._num_steps = 0

    def step(self) -> None:
        """Train on one local batch."""
        if self._num_steps % self._fetch_every == 0:
            self._links.fetch(self._flat)
            self._replica.load(self._layout.unpack(self._flat))
        self._layout.pack(self._replica.gradients(), self._gradient)
        self._losses = self._replica.losses()
        self._num_steps += 1
        if self._push_every > 1:
            self._accrued += self._gradient
        if self._num_steps % self._push_every == 0:
            self._links.push(
                self._accrued if self._push_every > 1 else self._gradient, count=self._push_every
            )
            self._accrued[:] = 0
        if self._num_steps % self._fetch_every:
            self._gradient *= self._rate
            self._flat -= self._gradient
            self._replica.load(self._layout.unpack(self._flat))

    def synchronize(self) -> None:
        """Return when the servers have taken up all that was pushed."""
        self._links.counts()

    def weights(self) -> Weights:
        """The servers' weights of now."""
        found = np.empty_like(self._flat)
        self._links.look(found)
        return self._layout.unpack(found)

    def staleness(self) -> dict[int, int]:
        """{updates: pushes}: how many pushes had which staleness, over all servers and workers so far."""
        total: Counter[int] = Counter()
        for counts in self._links.counts():
            total.update({int(steps): pushes for steps, pushes in counts["staleness"].items()})
        return dict(sorted(total.items()))

    def settings(self) -> dict[str, Setting]:
        """The learning rate too, which the options may leave to the network."""
        return {**super().settings(), "learning_rate": float(self._rate)}
