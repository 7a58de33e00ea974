"""Losses of torch whose passes sleep instead of computing (`models/slept.py`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dlscale.models.slept import Sleeper, SleptPass


class SleptLoss(nn.Module):
    """A loss in the place of an objective's, with its part of the step's sleep.

    Each parameter's gradient, of its own size and layout, is filled with the mean of the batch's first tensor. That
    mean and filling take none of the exchange's time: they are done within the sleep.
    """

    def __init__(self, replaced: nn.Module, parameters: Sequence[nn.Parameter], *, sleeps: SleptPass) -> None:
        super().__init__()
        self.replaced = replaced  # never called; DistributedDataParallel looks for the parameters in it
        # In a tuple: not registered a second time.
        self._gradients = tuple((parameters[place], seconds) for place, seconds in sleeps.gradients)
        self._forward = sleeps.forward_seconds
        self._sleeper = Sleeper()

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        """The mean of the batch's first tensor."""
        begin = time.perf_counter()
        value = float(batch[0].double().mean())
        self._sleeper.sleep(self._forward, since=begin)
        loss = torch.tensor(value)
        for parameter, seconds in reversed(
            self._gradients
        ):  # a chain, which backpropagation goes back from its end
            loss = _Slept.apply(  # type: ignore[no-untyped-call]
                loss, parameter, value, seconds, self._sleeper
            )
        return loss


class _Slept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, parameter: torch.Tensor, *rest: Any) -> torch.Tensor:
        ctx.parameter, ctx.rest = parameter, rest
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        begin = time.perf_counter()
        value, seconds, sleeper = ctx.rest
        gradient = torch.full_like(ctx.parameter, value)
        sleeper.sleep(seconds, since=begin)
        return gradients[0], gradient, None, None, None
