"""Gradient exchange by Horovod's DistributedOptimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import horovod.torch as hvd
import torch

from dlscale.collectives.backend import Setting
from dlscale.collectives.training._torch import NoExchange, TorchTrainer, flat_in_memory


def over(replica: Any, *, settings: Mapping[str, Setting]) -> TorchTrainer:
    """The replica over Horovod, with the weights of rank 0; collective."""
    for objective in replica.objectives:
        flats = (flat_in_memory(parameter.detach()) for parameter in objective.parameters)
        named = dict(zip(objective.names, flats, strict=True))
        hvd.broadcast_parameters(named, root_rank=0)
    return TorchTrainer(replica, [HorovodExchange(o, settings) for o in replica.objectives])


class InMemoryOrder:
    """A compression in Horovod's sense: it sees gradients flat, since it takes no tensor that is not contiguous.

    With channels last that is every convolution's. Nothing is copied: the flat view shares the gradient's memory.
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(the view that travels, the gradient itself)."""
        return flat_in_memory(tensor), tensor

    @staticmethod
    def decompress(travelled: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        """The gradient, in whose memory the mean is."""
        return gradient


class HorovodExchange(NoExchange):
    """Averages an objective's gradients by DistributedOptimizer's hooks (`Exchange`).

    Its `synchronize` is called before any objective is updated. The update itself is that of all backends, and what
    `step` inside `skip_synchronize` would do.
    """

    def __init__(self, objective: Any, settings: Mapping[str, Setting]) -> None:
        super().__init__(objective)
        self._settings = settings
        named = list(zip(objective.names, objective.parameters, strict=True))
        self._optimizer = hvd.DistributedOptimizer(
            objective.optimizer, named_parameters=named, op=hvd.Average, compression=InMemoryOrder
        )

    def finish(self) -> bool:
        self._optimizer.synchronize()
        return True

    def settings(self) -> Mapping[str, Setting]:
        return self._settings

    def close(self) -> None:
        del self._optimizer
