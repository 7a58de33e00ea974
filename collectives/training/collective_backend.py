"""The backend for any `Collective`: gradients travel in the buckets of the framework's trainer.

On request they are compressed on their way, and the trainer makes sure, every so many steps, that all ranks still
hold the same weights.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Backend, Collective, Trainer, WrappedTrainer
from dlscale.collectives.buffers import check_buffers_match
from dlscale.collectives.compression import (
    CompressedCollective,
    CompressedTrainer,
    Compression,
)
from dlscale.collectives.compression.compressors import Compressor
from dlscale.collectives.option_kinds import read_into_kinds
from dlscale.collectives.training.communication import Training
from dlscale.models.workload import Replica, ReplicaFactory, Shard

TRAINING_KINDS = (Training, Compression)  # of every backend over a `Collective`

OPERATIONS_MODULE = "dlscale.collectives.training._tensorflow_ops"


def check_operations(framework: str) -> None:
    """Returns if this installation can exchange gradients of the framework. Raises UsageError."""
    if framework == "tensorflow" and not importlib.util.find_spec(OPERATIONS_MODULE):
        raise UsageError(
            "TensorFlow's exchange of gradients was not built: the installation found no C++ compiler; "
            "reinstall dlscale where there is one: pip install --no-deps --force-reinstall ."
        )


def read_training(
    options: dict[str, Any], framework: str, *, backend: str, others: Sequence[type] = ()
) -> tuple[Any, ...]:
    """The options of `Training` and `Compression`, and of `others` that the backend has. Raises UsageError."""
    *read, training, compression = read_into_kinds(
        (*others, *TRAINING_KINDS), options, owner=f"backend {backend}"
    )
    compression.check(pipelined=training.pipelined, teams=training.teams, framework=framework)
    return training, compression, *read


class CollectiveBackend(Backend):
    """Trains over its own collectives and hands out further ones (`Backend`)."""

    def __init__(
        self,
        name: str,
        make_collective: Callable[[], Collective],
        training: Training | None = None,
        compression: Compression | None = None,
    ) -> None:
        self.name = name
        self.training, self._compression = training or Training(), compression or Compression()
        self._make_collective = make_collective
        # One per team; a single one also where ranks find no core for a thread and do not overlap.
        self._collectives = [make_collective() for _ in range(max(self.training.teams, 1))]

    @property
    def delay(self) -> int:
        """Steps from a gradient's own step to the one that applies it."""
        return int(self.training.pipelined)

    @property
    def compressor(self) -> Compressor | None:
        return self._compression.compressor()

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica whose gradient buckets go through the collectives, with the weights of rank 0.

        The gate looks at the pipelined mode itself, so its trainer has no cool-down.
        """
        replica = factory(shard=shard, seed=seed, gate=gate)
        first = self._collectives[0]
        take_first_weights(replica, first)
        training = replace(self.training, pipelined_until_step=0) if gate else self.training
        integration = importlib.import_module(f"dlscale.collectives.training._{replica.framework}_buckets")
        # Anew for each trainer: what one leaves over is none of the next one's.
        compressed = [self._compressed(c) for c in self._collectives] if self.compressor else []
        own: Trainer = integration.over(replica, compressed or self._collectives, training)
        trainer = own
        if training.check_every:
            trainer = CheckedTrainer(trainer, first, every=training.check_every, names=replica.names())
        if compressed:
            compression = self._compression.settings()
            return CompressedTrainer(trainer, compressed, layout=own, settings=compression)
        return trainer

    def collective(self) -> Collective:
        """Operations on a further communicator, averages compressed where gradients are; collective."""
        collective = self._make_collective()
        return self._compressed(collective) if self.compressor else collective

    def close(self) -> None:
        for collective in self._collectives:
            collective.close()

    def _compressed(self, collective: Collective) -> CompressedCollective:
        return CompressedCollective(collective, cast(Compressor, self.compressor))


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
