"""What the torch networks of all workloads share: objectives and the replica that holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from dlscale.models.workload import Weights

Batch = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchObjective:
    """A loss module and the parameters that it, alone, is differentiated for (`workload.Objective`)."""

    loss: nn.Module  # forward(*batch) -> mean loss over the local batch, a scalar
    parameters: tuple[nn.Parameter, ...]
    optimizer: torch.optim.Optimizer


class TorchReplica:
    """`workload.Replica` in torch: objectives in order and an endless source of local batches."""

    def __init__(self, objectives: Sequence[TorchObjective], batches: Iterator[Batch]) -> None:
        self.objectives = tuple(objectives)
        self._batches = batches

    def next_batch(self) -> Batch:
        """The next local batch."""
        return next(self._batches)

    def weights(self) -> Weights:
        """Copies of the trainable weights."""
        return [to_numpy(parameter) for parameter in self._parameters()]

    def load(self, weights: Weights) -> None:
        """Overwrite the trainable weights."""
        with torch.no_grad():
            for parameter, weight in zip(self._parameters(), weights, strict=True):
                parameter.copy_(torch.from_numpy(weight))

    def gradients(self) -> Weights:
        """This replica's own mean gradients on the next local batch, in the order of `weights`."""
        batch = self.next_batch()
        found: Weights = []
        for objective in self.objectives:
            gradients = torch.autograd.grad(objective.loss(*batch), objective.parameters)
            found.extend(to_numpy(gradient) for gradient in gradients)
        return found

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for objective in self.objectives for parameter in objective.parameters]


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    """A C-contiguous copy on the host, whatever the tensor's memory format."""
    return tensor.detach().cpu().contiguous().numpy().copy()
