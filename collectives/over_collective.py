"""A backend for any `Collective`: gradients travel in the buckets of the framework's front."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from dlscale.collectives.backend import Capabilities, Collective, Trainer
from dlscale.collectives.capabilities import capabilities
from dlscale.models.workload import ReplicaFactory, Shard


class CollectiveBackend:
    """Trains over a collective of its own and hands out further ones (`Backend`)."""

    def __init__(self, name: str, make_collective: Callable[[], Collective]) -> None:
        self._name = name
        self._make_collective = make_collective
        self._gradients = make_collective()

    @property
    def capabilities(self) -> Capabilities:
        """This backend's row of the table."""
        return capabilities(self._name)

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica whose gradient buckets go through the collective, with the weights of rank 0."""
        replica = factory(shard=shard, seed=seed, gate=gate)
        weights = replica.weights()
        for weight in weights:
            self._gradients.broadcast(weight.reshape(-1), 0)
        replica.load(weights)
        front = importlib.import_module(f"dlscale.collectives.fronts._{replica.framework}_buckets")
        trainer: Trainer = front.over(replica, self._gradients)
        return trainer

    def collective(self) -> Collective:
        """Operations on a communicator of their own; collective."""
        return self._make_collective()

    def close(self) -> None:
        """Free the communicator of the gradients."""
        self._gradients.close()
