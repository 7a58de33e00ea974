"""A torch replica's state as arrays: parameters, batch norm's buffers, and what the optimizers keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from dlscale.models.state import check_names
from dlscale.models.workload import State


def read(networks: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> State:
    """Copies, on the host."""
    found = {name: tensor.detach().cpu().numpy().copy() for name, tensor in _tensors(networks)}
    for name, values in _kept(optimizers):
        found |= {
            f"{name}.{key}": value.detach().cpu().numpy().copy()
            for key, value in values.items()
            if isinstance(value, torch.Tensor)
        }
    return found


def write(networks: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], state: State) -> None:
    """Overwrite networks and optimizers that have not taken a step. Raises UsageError if they are others."""
    kept = {name: value for name, value in state.items() if name.startswith("optimizer")}
    tensors = dict(_tensors(networks))
    check_names(
        {name: value for name, value in state.items() if name not in kept},
        {name: tensor.shape for name, tensor in tensors.items()},
    )
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(torch.from_numpy(state[name]))
    for index, optimizer in enumerate(optimizers):
        slots: dict[int, dict[str, Any]] = {}
        for name, value in kept.items():
            owner, place, key = name.split(".", 2)
            if owner == f"optimizer{index}":
                slots.setdefault(int(place), {})[key] = torch.from_numpy(value.copy())
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})


def _tensors(networks: Sequence[nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    for index, network in enumerate(networks):
        for kind in (network.named_parameters(), network.named_buffers()):
            for name, tensor in kind:
                yield f"network{index}.{name}", tensor


def _kept(optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[tuple[str, dict[str, Any]]]:
    """("optimizer<number>.<place of a parameter>", what is kept of it by name)."""
    for index, optimizer in enumerate(optimizers):
        for place, values in optimizer.state_dict()["state"].items():
            yield f"optimizer{index}.{place}", values
