"""The networks of predicted curves over devices: their gradients, from the layers that they are made of.

Ours are the workloads', `paper`. ResNet-101 and ResNet-152 are our ResNet-50 with other numbers of blocks
(arXiv:1512.03385, table 1). VGG-16 is configuration D of arXiv:1409.1556, as pytorch/vision has it
(torchvision/models/vgg.py: its `cfgs["D"]` and classifier).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from dlscale.models import load_workload
from dlscale.models.layers import Layer, backward_shares, dense
from dlscale.models.resnet50 import Network, step_layers

FLOAT32_BYTES = 4
LARGEST = 0.25  # of a part: its share of the bytes, or of backpropagation


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Gradients that travel together: their bytes, ready after that share of backpropagation; so many variables."""

    num_bytes: int
    ready: float
    num_variables: int = 1


@cache
def parts_of(network: str) -> tuple[Part, ...]:
    """The gradients of a network in the order of backpropagation.

    Neighbours are put together up to a quarter of the bytes and a quarter of backpropagation, as exchanges fuse them.
    """
    layers = [
        Part(
            num_bytes=FLOAT32_BYTES * (layer.kernel + layer.bias),
            ready=share,
            num_variables=1 + bool(layer.bias),
        )
        for layer, share in backward_shares(NETWORKS[network]())
        if layer.kernel
    ]
    total = sum(layer.num_bytes for layer in layers)
    parts: list[Part] = []
    begin = ready = 0.0
    for layer in layers:
        last = parts[-1] if parts else None
        if not last or last.num_bytes + layer.num_bytes > LARGEST * total or layer.ready - begin > LARGEST:
            parts.append(layer)
            begin = ready
        else:
            parts[-1] = Part(
                num_bytes=last.num_bytes + layer.num_bytes,
                ready=layer.ready,
                num_variables=last.num_variables + layer.num_variables,
            )
        ready = layer.ready
    return tuple(parts)


def _ours(name: str) -> Sequence[Layer]:
    workload = load_workload(name)
    if workload.layers is None:
        raise ValueError(f"{name} does not state its layers")
    return workload.layers(workload.preset("paper"))


def _resnet(*num_blocks: int) -> Sequence[Layer]:
    return step_layers(load_workload("resnet50").preset("paper"), Network(num_blocks=num_blocks))


def _vgg16() -> Sequence[Layer]:
    """Stages of 3x3 convolutions with biases, each followed by a pool that halves the image; three dense layers."""
    found: list[Layer] = []
    inputs, size = 3, 224
    for outputs, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            kernel = 9 * inputs * outputs
            name, flops = f"convolutions.{len(found)}", 2 * kernel * size**2
            found.append(Layer(name, kernel, outputs, flops, backward=2 if found else 1))
            inputs = outputs
        size //= 2
    widths = (inputs * size**2, 4096, 4096, 1000)
    return [*found, *(dense(f"dense.{place}", *widths[place : place + 2]) for place in range(3))]


NETWORKS: Mapping[str, Callable[[], Sequence[Layer]]] = {
    "resnet50": partial(_ours, "resnet50"),
    "resnet101": partial(_resnet, 3, 4, 23, 3),
    "resnet152": partial(_resnet, 3, 8, 36, 3),
    "vgg16": _vgg16,
    "inception_v3": partial(_ours, "inception_v3"),
    "cosmogan": partial(_ours, "cosmogan"),
}
