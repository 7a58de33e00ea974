"""Optimizers' state in parts, over any backend whose collective reduces to parts and gathers them (`PartsCollective`).

A step reduce-scatters the gradients, updates this rank's part of the weights, and gathers the parts: the bytes of an
allreduce, and 1/P of the optimizers' state and work.
"""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Backend, Collective, PartsCollective, Trainer
from dlscale.collectives.capabilities import Capabilities
from dlscale.collectives.sharding import OPTIMIZER
from dlscale.collectives.training.collective_backend import take_first_weights
from dlscale.collectives.training.communication import Training
from dlscale.models.workload import ReplicaFactory, Shard


def over(backend: Backend) -> OptimizerShardingBackend:
    """The backend's ranks, each with its part of the optimizers' state; collective.

    Raises UsageError if what is installed cannot reduce to parts.
    """
    return OptimizerShardingBackend(backend)


class OptimizerShardingBackend(Backend):
    """Another backend's ranks, which update weights in parts over its collectives (`Backend`)."""

    shard = OPTIMIZER

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._training: Training = getattr(backend, "training", Training())
        own = [backend.collective() for _ in range(max(self._training.teams, 1))]
        self._first = cast(PartsCollective, own[0])  # for what is no part of a step
        self._own = [TimedCollective(collective) for collective in own]
        _check_reduces(self._first, backend.capabilities.name)

    @property
    def capabilities(self) -> Capabilities:
        return self._backend.capabilities

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica with the weights of rank 0, whose optimizers have this rank's part of their state.

        Raises UsageError for an optimizer that does not update element by element.
        """
        replica = factory(shard=shard, seed=seed, gate=gate)
        take_first_weights(replica, self._first)
        from dlscale.collectives.sharding import _torch_optimizer

        return _torch_optimizer.over(replica, self._own, self._training, gathering=self._first)

    def gather_seconds(self) -> float:
        """Of the team that took longest: teams gather at the same time."""
        return max(collective.gather_seconds for collective in self._own)

    def collective(self) -> Collective:
        return self._backend.collective()

    def close(self) -> None:
        for collective in self._own:
            collective.close()
        self._backend.close()


def _check_reduces(collective: PartsCollective, backend: str) -> None:
    """Returns if a small sum arrives in parts; collective. Raises UsageError: Gloo of torch 2.4 refuses it."""
    try:
        collective.reduce_scatter(np.zeros(collective.size, np.float32), np.zeros(1, np.float32))
    except RuntimeError as error:
        raise UsageError(
            f"shard={OPTIMIZER} over {backend}: {str(error).splitlines()[0]}; choose another backend, or a newer "
            "library"
        ) from None


class TimedCollective:
    """Another collective, whose gathers are timed; all else is its own (`Collective`)."""

    def __init__(self, collective: Collective) -> None:
        self._collective = collective
        self.gather_seconds = 0.0

    def allgather(self, piece: NDArray[Any], output: NDArray[Any]) -> None:
        begin = time.perf_counter()
        self._collective.allgather(piece, output)  # type: ignore[attr-defined]
        self.gather_seconds += time.perf_counter() - begin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collective, name)
