"""torch's optimizers, told over the wire: described by a worker, built by a server."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from dlscale.collectives.grpc_ps.messages import ELEMENTWISE, OptimizerSpec, RefusedError
from dlscale.models.errors import UsageError

PLAIN = (bool, int, float, str, type(None))


def describe(optimizer: torch.optim.Optimizer) -> OptimizerSpec:
    """Its class and hyperparameters. Raises UsageError unless it treats all elements of all parameters alike."""
    name = type(optimizer).__name__
    if name not in ELEMENTWISE or type(optimizer) is not getattr(torch.optim, name):
        raise UsageError(
            f"backend grpc_ps cuts tensors into pieces, which optimizer {name} does not allow; "
            f"choose from torch.optim: {', '.join(ELEMENTWISE)}"
        )
    if len(optimizer.param_groups) != 1:
        raise UsageError(
            f"backend grpc_ps updates all parameters of an optimizer alike, but this {name} has "
            f"{len(optimizer.param_groups)} groups; give it one"
        )
    known = inspect.signature(type(optimizer)).parameters
    group = {
        key: value for key, value in optimizer.param_groups[0].items() if key in known and key != "params"
    }
    return OptimizerSpec(name=name, hyperparameters={key: _plain(key, value) for key, value in group.items()})


def build(spec: OptimizerSpec, weights: nn.Parameter) -> torch.optim.Optimizer:
    """The optimizer of these weights. Raises RefusedError if its class does not take the hyperparameters."""
    kind = getattr(torch.optim, spec.name)
    try:
        optimizer: torch.optim.Optimizer = kind([weights], **spec.hyperparameters)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RefusedError(f"optimizer {spec.name}: {error}") from None
    return optimizer


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, tuple | list) and all(type(entry) in (int, float) for entry in value):
        return tuple(value)
    if type(value) in PLAIN:
        return value
    raise UsageError(
        f"backend grpc_ps: hyperparameter {key} is a {type(value).__name__}; give a plain number"
    )
