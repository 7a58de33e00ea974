"""Losses of torch whose passes sleep instead of computing (`models/slept.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dlscale.models.slept import Sleeper, Slept


class SleptLoss(nn.Module):
    """A loss in the place of an objective's, which has `share` of the step's sleep.

    Each parameter's gradient, of its own size and layout, is filled with the mean of the batch's first tensor.
    """

    def __init__(
        self, replaced: nn.Module, parameters: Sequence[nn.Parameter], *, slept: Slept, share: float
    ) -> None:
        super().__init__()
        self.replaced = replaced  # never called; DistributedDataParallel looks for the parameters in it
        self._trained = tuple(parameters)  # in a tuple: not registered a second time
        self._forward = slept.forward_seconds * share
        self._each = slept.backward_seconds * share / len(self._trained)
        self._sleeper = Sleeper()

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        """The mean of the batch's first tensor."""
        value = float(batch[0].double().mean())
        self._sleeper.sleep(self._forward)
        loss = torch.tensor(value)
        for parameter in self._trained:  # a chain, which backpropagation goes back from its end
            loss = _Slept.apply(  # type: ignore[no-untyped-call]
                loss, parameter, value, self._each, self._sleeper
            )
        return loss


class _Slept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, parameter: torch.Tensor, *rest: Any) -> torch.Tensor:
        ctx.parameter, ctx.rest = parameter, rest
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        value, seconds, sleeper = ctx.rest
        sleeper.sleep(seconds)
        return gradients[0], torch.full_like(ctx.parameter, value), None, None, None
