"""Another backend's ranks, each of which keeps a part of a training's state (`Backend`)."""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Backend, Collective, PartsCollective, Trainer
from dlscale.collectives.sharding import OPTIMIZER, PARAMETERS
from dlscale.collectives.training.collective_backend import take_first_weights
from dlscale.collectives.training.communication import Training
from dlscale.models.workload import ReplicaFactory, Shard


def over(backend: Backend, shard: str) -> Backend:
    """The backend's ranks, each with its part of what `shard` says; collective.

    Raises UsageError if what is installed cannot do it.
    """
    return (OptimizerSharding if shard == OPTIMIZER else ParameterSharding)(backend)


class _Sharding(Backend):
    def __init__(self, backend: Backend) -> None:
        self._backend, self.name = backend, backend.name

    def collective(self) -> Collective:
        return self._backend.collective()

    def close(self) -> None:
        """Leave the backend; collective. Trainers are closed before."""
        self._backend.close()


class OptimizerSharding(_Sharding):
    """Ranks that update weights in parts, over any collective that reduces to parts and gathers them.

    A step reduce-scatters the gradients, updates this rank's part of the weights, and gathers the parts: the bytes of
    an allreduce, and 1/P of the optimizers' state and work.
    """

    shard = OPTIMIZER

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._training: Training = getattr(backend, "training", Training())
        own = [backend.collective() for _ in range(max(self._training.teams, 1))]
        self._first = cast(PartsCollective, own[0])  # for what is no part of a step
        self._own = [TimedCollective(collective) for collective in own]
        try:
            self._first.reduce_scatter(np.zeros(self._first.size, np.float32), np.zeros(1, np.float32))
        except RuntimeError as error:  # Gloo of torch 2.4
            raise UsageError(
                f"shard={OPTIMIZER} over {self.name}: {str(error).splitlines()[0]}; choose another backend, or a newer "
                "library"
            ) from None

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

    def close(self) -> None:
        for collective in self._own:
            collective.close()
        super().close()


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


class ParameterSharding(_Sharding):
    """Ranks that gather weights when they need them: torch's `fully_shard` over the backend's process group."""

    shard = PARAMETERS

    def __init__(self, backend: Backend) -> None:
        import torch
        from torch.distributed import fsdp

        if not hasattr(getattr(fsdp, "FSDPModule", None), "set_custom_all_gather"):
            raise UsageError(
                f"shard={PARAMETERS}: the fully_shard of torch {torch.__version__} does not let its operations be "
                "counted; take torch 2.13"
            )
        super().__init__(backend)
        self._group = backend.process_group()
        self._gathers: list[Any] = []  # of all trainers

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica with the weights of rank 0, of which this rank keeps its part.

        Raises UsageError for a network that cannot be sharded, and an optimizer that does not update element by
        element.
        """
        from dlscale.collectives.sharding import _torch_parameters

        trainer = _torch_parameters.over(factory(shard=shard, seed=seed, gate=gate), self._group)
        self._gathers.append(trainer.log)
        return trainer

    def gather_seconds(self) -> float | None:
        """Of all trainers; None on GPUs, which gather while they compute."""
        seconds = [log.gather_seconds for log in self._gathers]
        return None if None in seconds else sum(seconds)
