"""The state of torch networks and optimizers as arrays: parameters, batch norm's buffers, what the optimizers keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dlscale.base.errors import UsageError
from dlscale.models.workload import SLOTS, State, check_names

OTHER = "the checkpoint belongs to another training"
NUMBERS = (
    "int64",
    "float64",
    "bool",
)  # types of a number of Python's: torch's optimizers keep theirs in float32


def read_state(networks: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> State:
    """Copies, on the host."""
    state = {name: tensor.detach().cpu().numpy().copy() for name, tensor in state_tensors(networks)}
    return state | {name: value.copy() for name, value in view_slots(optimizers).items()}


def state_tensors(networks: Sequence[nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers, by the names that they have in a state."""
    for index, network in enumerate(networks):
        for kind in (network.named_parameters(), network.named_buffers()):
            for name, tensor in kind:
                yield f"network{index}.{name}", tensor


def view_slots(optimizers: Sequence[torch.optim.Optimizer]) -> State:
    """What optimizers keep of each parameter, tensors and numbers: on a CPU in its own memory."""
    return {
        f"{SLOTS}{index}.{place}.{key}": stored_slot(value)
        for index, optimizer in enumerate(optimizers)
        for place, values in optimizer.state_dict()["state"].items()
        for key, value in values.items()
        if isinstance(value, torch.Tensor | int | float)
    }


def stored_slot(value: Any) -> NDArray[Any]:
    """What an optimizer keeps of a parameter: a tensor, or a number such as the count of steps."""
    return view_in_memory_order(value) if isinstance(value, torch.Tensor) else np.array(value)


def write_state(
    networks: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], state: State
) -> None:
    """Overwrite networks and optimizers. Raises UsageError if they are others."""
    kept = {name: value for name, value in state.items() if name.startswith(SLOTS)}
    tensors = dict(state_tensors(networks))
    check_names(
        {name: value for name, value in state.items() if name not in kept},
        {name: tensor.shape for name, tensor in tensors.items()},
    )
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(torch.from_numpy(state[name]))
    for index, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        slots = {
            place: {key: restored_slot(value, parameters[place]) for key, value in values.items()}
            for place, values in slots_of(kept, index, [p.numel() for p in parameters]).items()
        }
        optimizer.load_state_dict({**optimizer.state_dict(), "state": slots})


def slots_of(kept: State, index: int, sizes: Sequence[int]) -> dict[int, State]:
    """{place of a parameter: what optimizer number `index` keeps of it}, of parameters with so many elements.

    Raises UsageError for slots of other parameters: torch would read beyond them.
    """
    slots: dict[int, State] = {}
    for name, value in kept.items():
        owner, place, key = name.split(".", 2)
        if owner != f"{SLOTS}{index}":
            continue
        if value.ndim and value.shape != ((size := sizes[int(place)]),):
            raise UsageError(f"{OTHER}: {name} has shape {value.shape}, and its weight {size} elements")
        slots.setdefault(int(place), {})[key] = value
    if len({frozenset(values) for values in slots.values()}) > 1:
        raise UsageError(f"{OTHER}: optimizer{index} keeps more of one weight than of another")
    return slots


def restored_slot(value: NDArray[Any], parameter: torch.Tensor) -> Any:
    """What an optimizer keeps of a parameter, from its array; of a tensor like it in its order of memory."""
    if not value.ndim and value.dtype.name in NUMBERS:
        return value.item()
    slot = torch.from_numpy(value.copy())
    if slot.dim() == 1 and parameter.dim() > 1 and slot.numel() == parameter.numel():
        return slot.as_strided(parameter.size(), parameter.stride())
    return slot


def view_in_memory_order(tensor: torch.Tensor) -> NDArray[Any]:
    """A weight or a slot flat, as a trainer's optimizer keeps it, on a CPU in its own memory; they have no gaps."""
    tensor = tensor.detach()
    flat = tensor.as_strided((tensor.numel(),), (1,)) if tensor.dim() > 1 else tensor
    return flat.cpu().numpy()


def canonical(tensor: torch.Tensor) -> NDArray[Any]:
    """A C-contiguous copy of a weight or gradient on the host, in the canonical layout."""
    tensor = canonical_axes(tensor.detach().cpu())
    copy: NDArray[Any] = tensor.clone(memory_format=torch.contiguous_format).numpy()
    return copy


def canonical_axes(tensor: torch.Tensor) -> torch.Tensor:
    """A view with the axes in canonical order.

    (O, I, H, W) becomes (H, W, I, O), a transposed convolution's (I, O, H, W) becomes (H, W, O, I), and a
    dense layer's (O, I) becomes (I, O): by the number of axes alone.
    """
    if tensor.dim() == 4:
        return tensor.permute(2, 3, 1, 0)
    return tensor.T if tensor.dim() == 2 else tensor


def from_canonical(tensor: torch.Tensor) -> torch.Tensor:
    """A view with the axes in torch's order."""
    if tensor.dim() == 4:
        return tensor.permute(3, 2, 0, 1)
    return tensor.T if tensor.dim() == 2 else tensor
