"""The backend for any `Collective`: gradients travel in the buckets of the framework's trainer.

On request they are compressed on their way, and the trainer makes sure, every so many steps, that all ranks still
hold the same weights.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from dlscale.collectives.backend import Collective, InStep, Trainer
from dlscale.collectives.buffers import check_buffers_match
from dlscale.collectives.compression import (
    BucketTrainer,
    CarryingCollective,
    CompressedCollective,
    CompressedTrainer,
    Compression,
)
from dlscale.collectives.compression.compressors import Compressor
from dlscale.collectives.training.communication import Training
from dlscale.collectives.training.replica_trainer import WrappedTrainer
from dlscale.models.workload import Replica, ReplicaFactory, Shard


class CollectiveBackend(InStep):
    """Trains over collectives of its own and hands out further ones (`Backend`)."""

    def __init__(
        self,
        name: str,
        make_collective: Callable[[], Collective],
        training: Training | None = None,
        compression: Compression | None = None,
    ) -> None:
        self.name = name
        self._compression = compression or Compression()
        self._make_collective = make_collective
        self._training = training or Training()
        # One per team; a single one also where a rank finds no core for its thread and does not overlap.
        own = [make_collective() for _ in range(max(self._training.teams, 1))]
        self._first = own[0]  # for what is no exchange of gradients
        self._gradients: list[Any] = list(own)
        self._framework = ""  # of the last replica

    @property
    def training(self) -> Training:
        return self._training

    @property
    def delay(self) -> int:
        """Steps by which the use of gradients is delayed."""
        return self._training.delay

    @property
    def compressor(self) -> Compressor | None:
        return self._compression.compressor()

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica whose gradient buckets go through the collectives, with the weights of rank 0.

        The gate looks at the pipelined mode itself, so its trainer has no cool-down.
        """
        replica = factory(shard=shard, seed=seed, gate=gate)
        first, self._framework = self._first, replica.framework
        take_first_weights(replica, first)
        training = replace(self._training, pipelined_until_step=0) if gate else self._training
        integration = importlib.import_module(f"dlscale.collectives.training._{replica.framework}_buckets")
        compressor = self.compressor
        # Anew for each trainer: what one leaves over is none of the next one's.
        compressed = [
            CompressedCollective(cast(CarryingCollective, c), compressor)
            for c in self._gradients
            if compressor
        ]
        own: Trainer = integration.over(replica, compressed or self._gradients, training)
        trainer = own
        if training.check_every:
            trainer = CheckedTrainer(trainer, first, every=training.check_every, names=replica.names())
        if compressed:
            compression = self._compression.settings()
            return CompressedTrainer(
                trainer, compressed, layout=cast(BucketTrainer, own), settings=compression
            )
        return trainer

    def collective(self) -> Collective:
        """Operations on a communicator of their own, averages compressed where gradients are; collective."""
        collective, compressor = self._make_collective(), self.compressor
        return (
            CompressedCollective(cast(CarryingCollective, collective), compressor)
            if compressor
            else collective
        )

    def close(self) -> None:
        for collective in self._gradients:
            collective.close()


def take_first_weights(replica: Replica, collective: Collective) -> None:
    """All ranks' replicas hold the weights of rank 0's; collective. Raises BuffersDifferError if they do not."""
    weights = replica.weights()
    for weight in weights:
        collective.broadcast(weight.reshape(-1), 0)
    replica.load(weights)
    check_buffers_match(collective, replica.weights(), names=replica.names())


class CheckedTrainer(WrappedTrainer):
    """Another trainer's steps, with the weights of all ranks compared after every `every` of them (`Trainer`)."""

    def __init__(self, trainer: Trainer, collective: Collective, *, every: int, names: Sequence[str]) -> None:
        super().__init__(trainer)
        self._collective = collective
        self._every, self.names = every, names
        self._num_steps = 0

    def step(self) -> None:
        """Train on one local batch. Raises BuffersDifferError on all ranks when their weights differ."""
        self._trainer.step()
        self._num_steps += 1
        if self._num_steps % self._every == 0:
            self._trainer.synchronize()  # the collective is free only when no exchange is under way
            check_buffers_match(self._collective, self._trainer.weights(), names=self.names)

    def settings(self) -> dict[str, str | int | float | bool]:
        """The decisions of the other trainer's exchange, and how often weights are compared."""
        return {**self._trainer.settings(), "check_every": self._every}
