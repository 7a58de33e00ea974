"""What torch's sharded trainers share: they refuse optimizers that need more than a part of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlscale.base.errors import UsageError
from dlscale.models.frameworks._torch_optimizers import obstacle_to_parts


def check_by_element(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Returns if each updates every element by its own gradient alone. Raises UsageError."""
    for optimizer in optimizers:
        if obstacle := obstacle_to_parts(optimizer):
            raise UsageError(f"{obstacle}; take an elementwise optimizer such as adam or sgd, or shard=none")
