"""torch's optimizers as data: described by a worker, checked and built by a server."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dlscale.base.errors import UsageError
from dlscale.collectives.grpc_ps.messages import ELEMENTWISE, OptimizerSpec, RefusedError

PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Parameters that are updated alike: those of one group of an objective's optimizer."""

    optimizer: OptimizerSpec
    parameters: tuple[nn.Parameter, ...]


def sections(objectives: Sequence[Any]) -> list[Section]:
    """The objectives' parameters: objectives in order, groups in order, each one's as the objective has them.

    Raises UsageError for an optimizer that `describe` refuses.
    """
    all_sections = []
    for objective in objectives:
        # By address: an optimizer may hold flat views of the parameters (`training._torch`).
        group_of = {
            parameter.data_ptr(): index
            for index, group in enumerate(objective.optimizer.param_groups)
            for parameter in group["params"]
        }
        for index in range(len(objective.optimizer.param_groups)):
            own = tuple(p for p in objective.parameters if group_of[p.data_ptr()] == index)
            if own:
                all_sections.append(
                    Section(optimizer=describe(objective.optimizer, group=index), parameters=own)
                )
    return all_sections


def describe(optimizer: torch.optim.Optimizer, *, group: int = 0) -> OptimizerSpec:
    """Its class and a group's hyperparameters. Raises UsageError unless it treats all elements of a tensor alike."""
    name = type(optimizer).__name__
    if name not in ELEMENTWISE or type(optimizer) is not getattr(torch.optim, name):
        raise UsageError(
            f"backend grpc_ps cuts tensors into pieces, which optimizer {name} does not allow; "
            f"choose from torch.optim: {', '.join(ELEMENTWISE)}"
        )
    known = inspect.signature(type(optimizer)).parameters
    settings = {
        key: value for key, value in optimizer.param_groups[group].items() if key in known and key != "params"
    }
    return OptimizerSpec(
        name=name, hyperparameters={key: _plain(key, value) for key, value in settings.items()}
    )


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
    if isinstance(value, torch.Tensor) and not value.dim():
        value = value.item()
    if type(value) in PLAIN:
        return value
    raise UsageError(
        f"backend grpc_ps: hyperparameter {key} is a {type(value).__name__}; give a plain number"
    )
