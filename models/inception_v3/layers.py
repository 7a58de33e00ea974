"""Inception v3 as a table, which both frameworks turn into modules, layer by layer and under the same names.

Sizes in comments are those of 299x299 images. Source: arXiv:1512.00567, table 1 and figures 5 to 7 and 10, with the
numbers of channels of torchvision's `models/inception.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlscale.models import layers as layers_

Size = tuple[int, int]  # height, width


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution without bias, with batch norm and ReLU. `padded`: at stride 1, it keeps height and width."""

    outputs: int
    size: Size
    stride: int = 1
    padded: bool = True

    @property
    def pad(self) -> Size:
        """Zeros on either side, along height and along width."""
        return (self.size[0] // 2, self.size[1] // 2) if self.padded else (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxPool:
    """Maxima of 3x3 pixels, at every second one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragePool:
    """Means of a square of pixels. `padded`: keeps height and width; padding is not counted."""

    size: int
    stride: int
    padded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """Sequences of layers on the same input, by name; their results are joined along the channels."""

    sequences: Mapping[str, Sequence[Layer]]


Layer = Convolution | MaxPool | AveragePool | Branches


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The parts of the network. After both heads, a dense layer each gives the logits."""

    stem: Sequence[Layer]
    blocks: Sequence[Layer]
    auxiliary: Sequence[Layer]  # on what `blocks` give; then the mean over pixels
    last_blocks: Sequence[Layer]  # on the same; then the mean over pixels and dropout


def layers(divisor: int) -> Layers:
    """The published network with the channels of all layers divided by `divisor`, which must divide 16."""
    if 16 % divisor:
        raise ValueError(f"numbers of channels are multiples of 16, and cannot be divided by {divisor}")
    parts = _Parts(divisor)
    return Layers(
        stem=[
            parts.convolution(32, (3, 3), stride=2, padded=False),  # 149x149
            parts.convolution(32, (3, 3), padded=False),  # 147x147
            parts.convolution(64, (3, 3)),
            MaxPool(),  # 73x73
            parts.convolution(80, (1, 1)),
            parts.convolution(192, (3, 3), padded=False),  # 71x71
            MaxPool(),  # 35x35
        ],
        blocks=[
            parts.wide(pool=32),
            parts.wide(pool=64),
            parts.wide(pool=64),
            parts.wide_to_middle(),  # 17x17
            parts.middle(inner=128),
            parts.middle(inner=160),
            parts.middle(inner=160),
            parts.middle(inner=192),
        ],
        auxiliary=[
            AveragePool(size=5, stride=3, padded=False),  # 5x5
            parts.convolution(128, (1, 1)),
            parts.convolution(768, (5, 5), padded=False),  # 1x1
        ],
        last_blocks=[
            parts.middle_to_narrow(),  # 8x8
            parts.narrow(),
            parts.narrow(),
        ],
    )


def num_outputs(sequence: Sequence[Layer], num_inputs: int) -> int:
    """Channels after all layers of the sequence."""
    for layer in sequence:
        if isinstance(layer, Convolution):
            num_inputs = layer.outputs
        elif isinstance(layer, Branches):
            num_inputs = sum(num_outputs(branch, num_inputs) for branch in layer.sequences.values())
    return num_inputs


@dataclass(frozen=True, slots=True)
class _Parts:
    divisor: int

    def convolution(self, outputs: int, size: Size, *, stride: int = 1, padded: bool = True) -> Convolution:
        return Convolution(outputs=outputs // self.divisor, size=size, stride=stride, padded=padded)

    def pool(self, outputs: int) -> Sequence[Layer]:
        return [AveragePool(size=3, stride=1, padded=True), self.convolution(outputs, (1, 1))]

    def wide(self, *, pool: int) -> Branches:
        """At 35x35: figure 5, with one 5x5 convolution kept."""
        conv = self.convolution
        return Branches(
            sequences={
                "pointwise": [conv(64, (1, 1))],
                "shallow": [conv(48, (1, 1)), conv(64, (5, 5))],
                "deep": [conv(64, (1, 1)), conv(96, (3, 3)), conv(96, (3, 3))],
                "pool": self.pool(pool),
            }
        )

    def wide_to_middle(self) -> Branches:
        """From 35x35 to 17x17: figure 10."""
        conv = self.convolution
        return Branches(
            sequences={
                "shallow": [conv(384, (3, 3), stride=2, padded=False)],
                "deep": [conv(64, (1, 1)), conv(96, (3, 3)), conv(96, (3, 3), stride=2, padded=False)],
                "pool": [MaxPool()],
            }
        )

    def middle(self, *, inner: int) -> Branches:
        """At 17x17: figure 6, where 7x7 convolutions are taken apart into 1x7 and 7x1."""
        conv = self.convolution
        return Branches(
            sequences={
                "pointwise": [conv(192, (1, 1))],
                "shallow": [conv(inner, (1, 1)), conv(inner, (1, 7)), conv(192, (7, 1))],
                "deep": [
                    conv(inner, (1, 1)),
                    conv(inner, (7, 1)),
                    conv(inner, (1, 7)),
                    conv(inner, (7, 1)),
                    conv(192, (1, 7)),
                ],
                "pool": self.pool(192),
            }
        )

    def middle_to_narrow(self) -> Branches:
        """From 17x17 to 8x8."""
        conv = self.convolution
        return Branches(
            sequences={
                "shallow": [conv(192, (1, 1)), conv(320, (3, 3), stride=2, padded=False)],
                "deep": [
                    conv(192, (1, 1)),
                    conv(192, (1, 7)),
                    conv(192, (7, 1)),
                    conv(192, (3, 3), stride=2, padded=False),
                ],
                "pool": [MaxPool()],
            }
        )

    def narrow(self) -> Branches:
        """At 8x8: figure 7, where a branch ends in 1x3 beside 3x1."""
        conv = self.convolution
        fork = Branches(sequences={"row": [conv(384, (1, 3))], "column": [conv(384, (3, 1))]})
        return Branches(
            sequences={
                "pointwise": [conv(320, (1, 1))],
                "shallow": [conv(384, (1, 1)), fork],
                "deep": [conv(448, (1, 1)), conv(384, (3, 3)), fork],
                "pool": self.pool(192),
            }
        )


def counted(
    name: str, sequence: Sequence[Layer], inputs: int, size: Size, *, first: bool = False
) -> tuple[list[layers_.Layer], Size]:
    """What a step computes in a sequence on maps of that size, and the size after it; `first`: on images."""
    found: list[layers_.Layer] = []
    for place, layer in enumerate(sequence):
        here, outputs, before = f"{name}.{place}", num_outputs([layer], inputs), size
        match layer:
            case Convolution():
                size = _windows(size, layer.size, layer.stride, layer.pad)
                window, pixels = layer.size[0] * layer.size[1], size[0] * size[1]
                found += layers_.convolution_norm(
                    here, inputs, outputs, window=window, pixels=pixels, first=first and not place
                )
            case Branches():
                for branch, inner in layer.sequences.items():
                    computed, size = counted(f"{here}.{branch}", inner, inputs, before)
                    found += computed
            case AveragePool():
                size = before if layer.padded else _windows(size, (layer.size,) * 2, layer.stride, (0, 0))
            case _:
                size = _windows(size, (3, 3), 2, (0, 0))
        inputs = outputs
    return found, size


def _windows(size: Size, window: Size, stride: int, pad: Size) -> Size:
    height, width = ((n + 2 * p - w) // stride + 1 for n, p, w in zip(size, pad, window, strict=True))
    return height, width
