"""What a step of a network computes, layer by layer, from the sizes of its layers: no framework is asked.

A workload states its layers (`Workload.layers`) in the order of a forward pass; tests hold them to the networks: names,
numbers of weights, operations of a step, and the order in which gradients become ready. Predictions spread over them
what a step takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: numbers of trainable elements, and operations per sample of a forward pass, 2 per multiply-add.

    A step passes it `forward` times, and comes back with `backward` times as many operations: as many for the gradients
    of its weights as for those of its input, which a first layer has no need of. Without weights it takes time alone.
    """

    name: str
    kernel: int
    bias: int
    forward_flops: int
    forward: int = 1
    backward: int = 2
    objective: int = 0  # that its weights are of, in the order in which objectives are differentiated

    @property
    def step_flops(self) -> int:
        """Operations of a step per sample."""
        return (self.forward + self.backward) * self.forward_flops


def step_flops(layers: Sequence[Layer]) -> int:
    """Operations of a step per sample."""
    return sum(layer.step_flops for layer in layers)


def backward_shares(layers: Sequence[Layer]) -> Iterator[tuple[Layer, float]]:
    """Each layer, the last one first, with the share of the backward pass after which its gradients are ready."""
    flops = [layer.backward * layer.forward_flops for layer in reversed(layers)]
    for layer, done in zip(reversed(layers), accumulate(flops), strict=True):
        yield layer, done / sum(flops)


def convolution_norm(
    name: str, inputs: int, outputs: int, *, window: int, pixels: int, first: bool = False
) -> list[Layer]:
    """A convolution over `window` pixels without bias, whose results have so many `pixels`, and its batch norm."""
    kernel = window * inputs * outputs
    return [
        Layer(f"{name}.convolution", kernel, 0, 2 * kernel * pixels, backward=1 if first else 2),
        Layer(f"{name}.norm", outputs, outputs, 0),
    ]


def dense(name: str, inputs: int, outputs: int, *, samples: int = 1, backward: int = 2) -> Layer:
    """A product with a matrix and a bias, of so many vectors of each sample."""
    return Layer(name, inputs * outputs, outputs, 2 * samples * inputs * outputs, backward=backward)
