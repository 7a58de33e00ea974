"""Units of a torch network: modules whose weights can be gathered together, just before they compute.

Workloads name theirs (`TorchProgram.units`); of a network that names none its blocks and large layers are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
LEAST_SHARE = 0.01  # of a network's weights, that a single layer has to have in order to be a unit


def units_of(network: nn.Module) -> list[nn.Module]:
    """Blocks, and layers with a good share of the weights, in the order of their names; maybe none.

    A module that shares weights with another one is no unit.
    """
    owners = Counter(
        id(parameter)
        for module in network.modules()
        for parameter in module._parameters.values()
        if parameter is not None
    )
    num_weights = sum(parameter.numel() for parameter in network.parameters())

    def is_unit(module: nn.Module) -> bool:
        own = list(module.parameters())
        is_block = any(True for _ in module.children())
        is_large = sum(parameter.numel() for parameter in own) >= LEAST_SHARE * num_weights
        return bool(own) and (is_block or is_large) and all(owners[id(p)] == 1 for p in own)

    def search(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            if type(child) in CONTAINERS:
                yield from search(child)
            elif is_unit(child):
                yield child

    return list(dict.fromkeys(search(network)))


def obstacle_to_units(network: nn.Module, compute: Callable[[], Any], *, skips: bool) -> str:
    """Why the network's weights cannot be gathered unit by unit; empty if they can, as seen while it does `compute`.

    `skips`: whether it leaves weights out in some steps.
    """
    units = units_of(network)
    if not units:
        return "the network has no blocks or layers of its own whose weights could be gathered one after the other"
    if skips:
        return "the network leaves weights out in some steps, and ranks would wait for each other's"
    if numbers := [name for name, p in network.named_parameters() if not p.dim()]:
        return f"{numbers[0]} is a single number, which cannot be cut; the shape (1,) can"
    with _Watch(network, units) as watch:
        compute()
    if watch.outside:
        return f"{watch.outside[0]} is used while the layer that has it does not compute"
    return ""


class _Watch(TorchFunctionMode):
    """Notes the weights of units that are computed with while their unit is not called."""

    def __init__(self, network: nn.Module, units: list[nn.Module]) -> None:
        super().__init__()
        names = {id(parameter): name for name, parameter in network.named_parameters()}
        self.outside: list[str] = []
        self._weights = {
            id(p): (index, names[id(p)]) for index, unit in enumerate(units) for p in unit.parameters()
        }
        self._calls = [0] * len(units)
        self._hooks = []
        for index, unit in enumerate(units):
            self._hooks += [
                unit.register_forward_pre_hook(lambda *_, index=index: self._count(index, 1)),
                unit.register_forward_hook(lambda *_, index=index: self._count(index, -1)),
            ]

    def _count(self, index: int, change: int) -> None:
        self._calls[index] += change

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.__name__ != "__get__":  # what a weight says of itself, as its shape, its parts say too
            for value in tree_leaves((args, kwargs)):
                index, name = self._weights.get(id(value), (None, ""))
                if index is not None and not self._calls[index]:
                    self.outside.append(name)
        return func(*args, **kwargs)

    def __exit__(self, *given: Any) -> None:
        super().__exit__(*given)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()
