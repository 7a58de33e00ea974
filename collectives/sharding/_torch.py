"""What torch's sharded trainers share: they refuse optimizers that need more than a part of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dlscale.base.errors import UsageError

PROBE = (4, 4)  # a tensor that some optimizers treat by rows and columns
NUM_STEPS = 3
TOLERANCE = 1e-5


def check_by_element(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Returns if each updates every element by its own gradient alone. Raises UsageError.

    Seen by what it does: twins of it update a small tensor, one as a whole and one in two flat halves.
    """
    for optimizer in optimizers:
        name = type(optimizer).__name__
        if optimizer._optimizer_step_pre_hooks:
            raise UsageError(
                f"optimizer {name} has a hook before its step, as clip_norm makes one, and a rank has a part of the "
                "gradients alone; leave it out, or take shard=none"
            )
        for group in optimizer.param_groups:
            options = {key: value for key, value in group.items() if key != "params"}
            try:
                alike = _halves_are_alike(type(optimizer), options)
            except Exception as error:  # of a class that nobody here knows
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise UsageError(
                    f"optimizer {name} cannot update a part of a tensor ({reason}); take an elementwise one such as "
                    "adam or sgd, or shard=none"
                ) from None
            if not alike:
                raise UsageError(
                    f"optimizer {name} does not update element by element, and a rank has a part of each tensor alone; "
                    "take an elementwise one such as adam or sgd, or shard=none"
                )


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
