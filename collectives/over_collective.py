"""A backend for any `Collective`: gradients travel in the buckets of the framework's front."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace

from dlscale.collectives.backend import Capabilities, Collective, Trainer
from dlscale.collectives.capabilities import capabilities
from dlscale.collectives.checked import CheckedTrainer
from dlscale.collectives.in_step import InStep
from dlscale.collectives.matching import check_buffers_match
from dlscale.collectives.training import Training
from dlscale.models.workload import ReplicaFactory, Shard


class CollectiveBackend(InStep):
    """Trains over collectives of its own and hands out further ones (`Backend`)."""

    def __init__(
        self, name: str, make_collective: Callable[[], Collective], training: Training | None = None
    ) -> None:
        self._name = name
        self._make_collective = make_collective
        self._training = training or Training()
        # One per team; a single one also where a rank finds no core for its thread and exchanges in line.
        self._gradients = [make_collective() for _ in range(max(self._training.teams, 1))]

    @property
    def capabilities(self) -> Capabilities:
        """This backend's row of the table."""
        return capabilities(self._name)

    @property
    def delay(self) -> int:
        """Steps by which gradients are applied late."""
        return self._training.delay

    @property
    def wire(self) -> str:
        """What float32 gradients travel as, which the collective says in its settings where it rounds them."""
        return str(self._gradients[0].settings().get("wire", "float32"))

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica whose gradient buckets go through the collectives, with the weights of rank 0.

        The gate looks at the pipelined mode itself, so its trainer has no cool-down.
        """
        replica = factory(shard=shard, seed=seed, gate=gate)
        first = self._gradients[0]
        weights = replica.weights()
        for weight in weights:
            first.broadcast(weight.reshape(-1), 0)
        replica.load(weights)
        check_buffers_match(first, replica.weights(), names=replica.names())
        training = replace(self._training, pipelined_until_step=0) if gate else self._training
        front = importlib.import_module(f"dlscale.collectives.fronts._{replica.framework}_buckets")
        trainer: Trainer = front.over(replica, self._gradients, training)
        if training.check_every:
            trainer = CheckedTrainer(trainer, first, every=training.check_every, names=replica.names())
        return trainer

    def collective(self) -> Collective:
        """Operations on a communicator of their own; collective."""
        return self._make_collective()

    def close(self) -> None:
        """Free the communicators of the gradients."""
        for collective in self._gradients:
            collective.close()
