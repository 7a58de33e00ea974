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
        self._sleeper = Sleeper(most=sleeps.seconds)
        seconds_of = dict(zip(parameters, sleeps.forward(), strict=True))
        self.layers = nn.ModuleList()
        for module in replaced.modules():
            own = [p for p in module.parameters(recurse=False) if p in seconds_of]
            if own:
                seconds = sum(seconds_of.pop(parameter) for parameter in own)
                self.layers.append(_SleptLayer(own, seconds, self._sleeper))

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        """The mean of the batch's first tensor."""
        begin = time.perf_counter()
        value = float(batch[0].double().mean())
        self._sleeper.sleep(0, since=begin)
        for layer in self.layers:
            layer()
        loss = torch.tensor(value)
        for parameter, seconds in reversed(
            self._gradients
        ):  # a chain, which backpropagation goes back from its end
            loss = _Slept.apply(  # type: ignore[no-untyped-call]
                loss, parameter, value, seconds, self._sleeper
            )
        return loss


class _SleptLayer(nn.Module):
    """A layer's part of the forward pass. It has the layer's parameters, so that who waits for these is called."""

    def __init__(self, parameters: Sequence[nn.Parameter], seconds: float, sleeper: Sleeper) -> None:
        super().__init__()
        for index, parameter in enumerate(parameters):
            self.register_parameter(f"own{index}", parameter)
        self._seconds, self._sleeper = seconds, sleeper

    def forward(self) -> None:
        """Sleep."""
        self._sleeper.sleep(self._seconds)


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
