"""The layer that the torch image classifiers share, and which parts of a network are units.

A unit is a module whose weights ranks can gather together, just before it computes. Workloads name theirs
(`TorchProgram.units`); of a network that names none its blocks and large layers are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
LEAST_SHARE = 0.01  # of a network's weights, that a single layer has to have in order to be a unit


class ConvolutionNorm(nn.Module):
    """A convolution without bias, batch norm and, unless `relu` is False, ReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        size: int | tuple[int, int],
        stride: int = 1,
        pad: int | tuple[int, int] = 0,
        epsilon: float = 1e-5,
        relu: bool = True,
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, size, stride=stride, padding=pad, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=epsilon)
        self.relu = relu

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(N, outputs, H', W') of (N, inputs, H, W)."""
        normalised: torch.Tensor = self.norm(self.convolution(values))
        # In place: batch norm is differentiated by its input, so nobody needs what ReLU overwrites.
        return F.relu_(normalised) if self.relu else normalised


class GlobalMean(nn.Module):
    """From maps (N, C, H, W) to their means (N, C)."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.mean(dim=(2, 3))


class DenseOfMaps(nn.Linear):
    """From (N, H * W * C) of maps whose channels come last to (N, outputs)."""


class OwnRows(nn.Identity):
    """From whole maps (N, C, H, W), as a dense layer makes them, to the rows that the next layers take: all of them."""


class WholeMaps(nn.Identity):
    """From the rows that layers have made to whole maps (N, C, H, W): the rows are all of them."""


def has_weights(module: Any) -> bool:
    """Whether a module has parameters, of its own or inside."""
    return any(True for _ in module.parameters())


def units_of(network: nn.Module) -> list[nn.Module]:
    """Blocks, and layers with a good share of the weights, in the order of their names; maybe none.

    A module that shares weights with another one is no unit.
    """
    owners = Counter(
        id(parameter) for module in network.modules() for parameter in module.parameters(recurse=False)
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


def obstacle_to_units(network: nn.Module, *, skips: bool) -> str:
    """Why ranks cannot each have a part of the network's weights; empty if they can, as far as its parts tell.

    `skips`: whether it leaves weights out in some steps.
    """
    if skips:
        return "the network leaves weights out in some steps, and ranks would wait for each other's"
    if numbers := [name for name, p in network.named_parameters() if not p.dim()]:
        return f"{numbers[0]} is a single number, which cannot be cut; the shape (1,) can"
    return ""
