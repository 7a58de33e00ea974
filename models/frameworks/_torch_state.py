"""The state of torch networks and optimizers as arrays: parameters, batch norm's buffers, what the optimizers keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dlscale.base.errors import UsageError
from dlscale.models.weights import check_names
from dlscale.models.workload import State


def read_state(networks: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> State:
    """Copies, on the host."""
    state = {name: tensor.detach().cpu().numpy().copy() for name, tensor in _state_tensors(networks)}
    return state | {name: value.copy() for name, value in view_slots(optimizers).items()}


def view_slots(optimizers: Sequence[torch.optim.Optimizer]) -> State:
    """What optimizers keep: on a CPU in its own memory."""
    return {
        f"{name}.{key}": _stored(value)
        for name, values in _kept_by_optimizers(optimizers)
        for key, value in values.items()
        if _is_kept(value)
    }


def write_state(
    networks: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], state: State
) -> None:
    """Overwrite networks and optimizers. Raises UsageError if they are others."""
    kept = {name: value for name, value in state.items() if name.startswith("optimizer")}
    tensors = dict(_state_tensors(networks))
    check_names(
        {name: value for name, value in state.items() if name not in kept},
        {name: tensor.shape for name, tensor in tensors.items()},
    )
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(torch.from_numpy(state[name]))
    for index, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        slots: dict[int, dict[str, Any]] = {}
        for name, value in kept.items():
            owner, place, key = name.split(".", 2)
            if owner == f"optimizer{index}":
                _check_slot(name, value, parameters[int(place)])
                slots.setdefault(int(place), {})[key] = restored_slot(value, parameters[int(place)])
        if len({frozenset(values) for values in slots.values()}) > 1:
            raise UsageError(
                f"the checkpoint belongs to another training: optimizer{index} keeps more of one weight than of another"
            )
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})


NUMBERS = (
    "int64",
    "float64",
    "bool",
)  # types of a number of Python's: torch's optimizers keep theirs in float32


def _is_kept(value: Any) -> bool:
    """Whether that is part of a state: an optimizer may keep None or functions, too."""
    return isinstance(value, torch.Tensor | int | float)


def _stored(value: Any) -> NDArray[Any]:
    """What an optimizer keeps of a parameter: a tensor, or a number such as the count of steps."""
    if not isinstance(value, torch.Tensor):
        return np.array(value)
    return view_in_memory_order(value)


def _check_slot(name: str, value: NDArray[Any], parameter: torch.Tensor) -> None:
    """Raises UsageError for a slot of another size than its parameter: torch would read beyond it."""
    if value.ndim and value.shape != (parameter.numel(),):
        raise UsageError(
            f"the checkpoint belongs to another training: {name} has shape {value.shape}, and its weight "
            f"{parameter.numel()} elements"
        )


def restored_slot(value: NDArray[Any], parameter: torch.Tensor) -> Any:
    """What an optimizer keeps of a parameter, from its array."""
    if not value.ndim and value.dtype.name in NUMBERS:
        return value.item()
    return _laid_out(torch.from_numpy(value.copy()), parameter)


def view_in_memory_order(tensor: torch.Tensor) -> NDArray[Any]:
    """A weight or a slot flat, as a trainer's optimizer keeps it, on a CPU in its own memory; they have no gaps."""
    tensor = tensor.detach()
    flat = tensor.as_strided((tensor.numel(),), (1,)) if tensor.dim() > 1 else tensor
    return flat.cpu().numpy()


def _laid_out(slot: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A flat slot as its parameter lies in memory."""
    if slot.dim() == 1 and parameter.dim() > 1 and slot.numel() == parameter.numel():
        return slot.as_strided(parameter.size(), parameter.stride())
    return slot


def _state_tensors(networks: Sequence[nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    for index, network in enumerate(networks):
        for kind in (network.named_parameters(), network.named_buffers()):
            for name, tensor in kind:
                yield f"network{index}.{name}", tensor


def _kept_by_optimizers(optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[tuple[str, dict[str, Any]]]:
    """("optimizer<number>.<place of a parameter>", what is kept of it by name)."""
    for index, optimizer in enumerate(optimizers):
        for place, values in optimizer.state_dict()["state"].items():
            yield f"optimizer{index}.{place}", values
