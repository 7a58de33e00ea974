"""Optimizers of the torch networks: SGD with momentum, and those by name (models/optimizers.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from dlscale.models.optimizers import ADAM_EPSILON, BETAS, EPSILON, LAYERWISE, OptimizerRule
from dlscale.models.weights import decays


def momentum_sgd(
    network: nn.Module, *, learning_rate: float, momentum: float, weight_decay: float
) -> torch.optim.SGD:
    """SGD with Nesterov momentum; `weight_decay` times the weight joins the gradient where it applies."""
    groups = _by_decay(network.named_parameters(), term="weight_decay", value=weight_decay)
    return torch.optim.SGD(groups, lr=learning_rate, momentum=momentum, nesterov=True, fused=True)


def named_optimizer(
    rule: OptimizerRule, names: Sequence[str], parameters: Sequence[nn.Parameter], *, learning_rate: float
) -> torch.optim.Optimizer:
    """The optimizer of a rule for those parameters, whose names say where weight decay applies."""
    if rule.name == "adam":
        return torch.optim.Adam(parameters, lr=learning_rate, betas=BETAS, eps=ADAM_EPSILON, fused=True)
    named = zip(names, parameters, strict=True)
    momentum, decay = rule.momentum or 0.0, rule.weight_decay or 0.0
    if rule.name in LAYERWISE:
        groups = _by_decay(named, term="layer_decay", value=decay)
        return LayerwiseSgd(groups, rule, learning_rate=learning_rate)
    groups = _by_decay(named, term="weight_decay", value=decay)
    return torch.optim.SGD(groups, lr=learning_rate, momentum=momentum, fused=True)


def _by_decay(named: Iterable[tuple[str, nn.Parameter]], *, term: str, value: float) -> list[dict[str, Any]]:
    """Groups of parameters: those that decay, and the others."""
    pairs = list(named)
    groups = [
        {"params": [p for name, p in pairs if decays(name)], term: value},
        {"params": [p for name, p in pairs if not decays(name)], term: 0.0},
    ]
    return [group for group in groups if group["params"]]


class LayerwiseSgd(torch.optim.SGD):
    """LARS, or clipped LARC: SGD with momentum of gradients that are scaled parameter by parameter.

    The gradients themselves are left as they are: they may lie in buckets of an exchange.
    """

    def __init__(self, groups: list[dict[str, Any]], rule: OptimizerRule, *, learning_rate: float) -> None:
        super().__init__(groups, lr=learning_rate, momentum=rule.momentum or 0.0, fused=True)
        self._trust, self._clips = rule.trust_coefficient or 0.0, rule.name == "larc"

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step with the scaled gradients."""
        given: list[tuple[torch.Tensor, torch.Tensor]] = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if (gradient := parameter.grad) is not None:
                    given.append((parameter, gradient))
                    parameter.grad = self._scaled(
                        parameter, gradient, decay=group["layer_decay"], rate=group["lr"]
                    )
        loss = super().step(closure)
        for parameter, gradient in given:
            parameter.grad = gradient
        return loss

    def _scaled(
        self, parameter: torch.Tensor, gradient: torch.Tensor, *, decay: float, rate: float
    ) -> torch.Tensor:
        """A new tensor. The ratio stays on the device: the host does not wait for it."""
        weight_norm, norm = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(gradient)
        ratio = self._trust * weight_norm / (norm + decay * weight_norm + EPSILON)
        if self._clips:
            ratio = (ratio / rate).clamp(max=1.0)
        ratio = torch.where((weight_norm > 0) & (norm > 0), ratio, 1.0)
        return torch.add(gradient, parameter, alpha=decay).mul_(ratio)
