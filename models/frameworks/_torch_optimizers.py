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
        ratio = {"trust_coefficient": rule.trust_coefficient or 0.0, "clips": rule.name == "larc"}
        groups = [group | ratio for group in _by_decay(named, term="layer_decay", value=decay)]
        return LayerwiseSgd(groups, lr=learning_rate, momentum=momentum, fused=True)
    groups = _by_decay(named, term="weight_decay", value=decay)
    return torch.optim.SGD(groups, lr=learning_rate, momentum=momentum, fused=True)


PROBE = (4, 4)  # a tensor that some optimizers treat by rows and columns
NUM_STEPS = 3
TOLERANCE = 1e-5


def obstacle_to_parts(optimizer: torch.optim.Optimizer) -> str:
    """Why it cannot update a part of a tensor; empty if every element's update follows from its own gradient alone.

    Seen by what it does: twins of it update a small tensor, one as a whole and one in two flat halves.
    """
    name = type(optimizer).__name__
    if optimizer._optimizer_step_pre_hooks:
        return f"optimizer {name} has a hook before its step, as clip_norm makes one, which needs whole gradients"
    for group in optimizer.param_groups:
        options = {key: value for key, value in group.items() if key != "params"}
        try:
            alike = _halves_are_alike(type(optimizer), options)
        except Exception as error:  # of a class that nobody here knows
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            return f"optimizer {name} cannot update a part of a tensor ({reason})"
        if not alike:
            return f"optimizer {name} does not update element by element, and needs whole tensors"
    return ""


def _halves_are_alike(kind: Any, options: dict[str, Any]) -> bool:
    draw = torch.Generator().manual_seed(1)
    first = torch.randn(PROBE, generator=draw)
    middle = first.numel() // 2
    whole = nn.Parameter(first.clone())
    halves = [nn.Parameter(half.clone()) for half in torch.split(first.view(-1), middle)]
    twins = [kind([{**options, "params": parameters}]) for parameters in ([whole], halves)]
    for _ in range(NUM_STEPS):
        gradient = torch.randn(PROBE, generator=draw)
        whole.grad = gradient.clone()
        for half, own in zip(halves, torch.split(gradient.view(-1), middle), strict=True):
            half.grad = own.clone()
        for twin in twins:
            twin.step()
    together = torch.cat([half.detach() for half in halves])
    return bool(torch.allclose(whole.detach().view(-1), together, rtol=TOLERANCE, atol=TOLERANCE))


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

    Groups have `layer_decay`, `trust_coefficient` and `clips`: Horovod makes one of this class by its groups alone.
    The gradients themselves are left as they are: they may lie in buckets of an exchange.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        given: list[tuple[torch.Tensor, torch.Tensor]] = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if (gradient := parameter.grad) is not None:
                    given.append((parameter, gradient))
                    parameter.grad = _scaled(parameter, gradient, group)
        loss = super().step(closure)
        for parameter, gradient in given:
            parameter.grad = gradient
        return loss


def _scaled(parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
    """A new tensor. The ratio stays on the device: the host does not wait for it."""
    decay: float = group["layer_decay"]
    weight_norm, norm = torch.linalg.vector_norm(parameter), torch.linalg.vector_norm(gradient)
    ratio = group["trust_coefficient"] * weight_norm / (norm + decay * weight_norm + EPSILON)
    if group["clips"]:
        ratio = (ratio / group["lr"]).clamp(max=1.0)
    ratio = torch.where((weight_norm > 0) & (norm > 0), ratio, 1.0)
    return torch.add(gradient, parameter, alpha=decay).mul_(ratio)
