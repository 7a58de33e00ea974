"""What trains a replica over servers, one class per algorithm; the replica may be of any framework."""

from __future__ import annotations

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import BUCKET_SIZES
from dlscale.collectives.mpi_ps.links import ServerLinks
from dlscale.collectives.mpi_ps.messages import FlatLayout
from dlscale.collectives.training.replica_trainer import ReplicaTrainer
from dlscale.models.workload import Replica, State

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
