"""Updates of weights in the order in which they lie in memory.

torch's fused optimizers copy every gradient that is not contiguous in torch's own sense, which with channels last
is every convolution's. Given the same memory as flat tensors they have nothing to copy: ResNet-50's update takes
14 ms instead of 23 (1 core). For optimizers that treat all elements of a tensor alike it is the same arithmetic.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Update:
    """An objective's optimizer, working on flat views of the parameters' memory."""

    def __init__(self, objective: Any) -> None:
        self._optimizer = objective.optimizer
        self._flat = [
            (parameter, nn.Parameter(flat(parameter.detach()))) for parameter in objective.parameters
        ]
        by_identity = {id(parameter): view for parameter, view in self._flat}
        for group in self._optimizer.param_groups:
            group["params"] = [by_identity[id(parameter)] for parameter in group["params"]]

    def apply(self) -> None:
        """One step of the optimizer with the parameters' gradients."""
        for parameter, view in self._flat:
            view.grad = None if parameter.grad is None else flat(_laid_out_as(parameter, parameter.grad))
        self._optimizer.step()


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor without gaps, in the order in which they lie in memory; it shares that memory."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    if tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor.permute(0, 2, 3, 1).view(-1)
    raise ValueError(f"a tensor with shape {tuple(tensor.shape)} and strides {tensor.stride()} has gaps")


def _laid_out_as(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient in the parameter's memory layout, which is what torch accumulates into unless a hook changed it."""
    pairs = zip(parameter.size(), parameter.stride(), gradient.stride(), strict=True)
    if all(length == 1 or ours == theirs for length, ours, theirs in pairs):
        return gradient
    return torch.empty_like(parameter).copy_(gradient)
