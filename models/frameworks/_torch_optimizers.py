"""Optimizers of the torch networks: SGD with momentum, and those by name (models/optimizers.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dlscale.models.optimizers import ADAM_EPSILON, BETAS, OptimizerRule
from dlscale.models.weights import decays


def momentum_sgd(
    network: nn.Module, *, learning_rate: float, momentum: float, weight_decay: float
) -> torch.optim.SGD:
    """SGD with Nesterov momentum; `weight_decay` times the weight joins the gradient where it applies."""
    pairs = list(network.named_parameters())
    groups: list[dict[str, Any]] = [
        {"params": [p for name, p in pairs if decays(name)], "weight_decay": weight_decay},
        {"params": [p for name, p in pairs if not decays(name)], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.SGD(groups, lr=learning_rate, momentum=momentum, nesterov=True, fused=True)


def named_optimizer(
    rule: OptimizerRule, parameters: Sequence[nn.Parameter], *, learning_rate: float
) -> torch.optim.Optimizer:
    """The optimizer of a rule for those parameters."""
    if rule.name == "adam":
        return torch.optim.Adam(parameters, lr=learning_rate, betas=BETAS, eps=ADAM_EPSILON, fused=True)
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=rule.momentum or 0.0, fused=True)


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
