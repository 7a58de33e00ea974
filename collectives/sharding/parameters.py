"""Weights, gradients and optimizers' state in parts, by torch's `fully_shard` over a backend's process group."""

from __future__ import annotations

from typing import Any

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Backend, Collective, Trainer
from dlscale.collectives.capabilities import Capabilities
from dlscale.collectives.sharding import PARAMETERS
from dlscale.models.workload import ReplicaFactory, Shard


def over(backend: Backend) -> ParameterShardingBackend:
    """The backend's ranks, each with its part of everything; collective. Raises UsageError if torch is too old."""
    import torch
    from torch.distributed import fsdp

    if not hasattr(getattr(fsdp, "FSDPModule", None), "set_custom_all_gather"):
        raise UsageError(
            f"shard={PARAMETERS}: the fully_shard of torch {torch.__version__} does not let its operations be counted; "
            "take torch 2.13"
        )
    return ParameterShardingBackend(backend)


class ParameterShardingBackend(Backend):
    """Another backend's ranks, which gather weights when they need them, over its process group (`Backend`)."""

    shard = PARAMETERS

    def __init__(self, backend: Backend) -> None:
        self._backend, self._group = backend, backend.process_group()
        self._gathers: list[Any] = []  # of all trainers

    @property
    def capabilities(self) -> Capabilities:
        return self._backend.capabilities

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

    def collective(self) -> Collective:
        return self._backend.collective()

    def close(self) -> None:
        """Leave the process group; collective. Trainers are closed before."""
        self._backend.close()
