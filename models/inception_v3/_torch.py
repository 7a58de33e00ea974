"""Inception v3 in torch. Axis letters: N samples, C channels, H height, W width."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn

from dlscale.models.frameworks._torch import TorchProgram, objective
from dlscale.models.frameworks._torch_layers import ConvolutionNorm, has_weights
from dlscale.models.inception_v3 import AUXILIARY_WEIGHT, DIVISORS, EPSILON, KEEP_PROBABILITY, initial
from dlscale.models.inception_v3.layers import (
    AveragePool,
    Branches,
    Convolution,
    Layer,
    Layers,
    layers,
    num_outputs,
)
from dlscale.models.workload import Preset


class Joined(nn.ModuleDict):
    """Branches."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(N, sum of C, H', W') of (N, C, H, W)."""
        return torch.cat([branch(values) for branch in self.values()], dim=1)


class InceptionV3(nn.Module):
    """The network up to its logits and, while training, those of the auxiliary head, (N, classes) each."""

    def __init__(self, network: Layers, *, num_channels: int, num_classes: int) -> None:
        super().__init__()
        self.stem = _sequence(network.stem, num_channels)
        num_stem = num_outputs(network.stem, num_channels)
        self.blocks = _sequence(network.blocks, num_stem)
        num_middle = num_outputs(network.blocks, num_stem)
        self.auxiliary = _sequence(network.auxiliary, num_middle)
        self.auxiliary_classifier = nn.Linear(num_outputs(network.auxiliary, num_middle), num_classes)
        self.last_blocks = _sequence(network.last_blocks, num_middle)
        self.classifier = nn.Linear(num_outputs(network.last_blocks, num_middle), num_classes)

    def forward(self, images: torch.Tensor, masks: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Logits of images (N, C, H, W), and while training auxiliary ones; without a mask nothing is dropped."""
        values = self.blocks(self.stem(images))
        # The head comes first, or what adds up the gradients of `values` would have another order where a hook of
        # `fully_shard` collects those of the last blocks.
        auxiliary = [self.auxiliary(values).mean(dim=(2, 3))] if self.training else []
        features = self.last_blocks(values).mean(dim=(2, 3))
        for mask in masks:
            features = features * mask * (1 / KEEP_PROBABILITY)
        return [self.classifier(features), *map(self.auxiliary_classifier, auxiliary)]


class InceptionV3Loss(nn.Module):
    """Mean softmax cross-entropy, and 0.4 times that of the auxiliary head."""

    def __init__(self, network: InceptionV3) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor, labels: torch.Tensor, *masks: torch.Tensor) -> torch.Tensor:
        """Scalar loss of images (N, C, H, W), labels (N,) and no or one dropout mask (N, features)."""
        logits, auxiliary = self.network(images, masks)
        return F.cross_entropy(logits.float(), labels) + AUXILIARY_WEIGHT * F.cross_entropy(
            auxiliary.float(), labels
        )


def program(preset: Preset, *, gate: bool) -> TorchProgram:
    """The network of a preset and its one objective."""
    network = InceptionV3(
        layers(DIVISORS[preset.name]), num_channels=preset.input_shape[0], num_classes=preset.num_classes
    )
    return TorchProgram(
        networks=[network],
        objectives=[
            objective(
                InceptionV3Loss(network),
                network,
                # Not fused: without momentum it only adds a copy of every gradient with channels last
                # (all parameters: 18 ms against 6, 1 core).
                lambda parameters: torch.optim.SGD(parameters, lr=preset.learning_rate),
                gate=gate,
            )
        ],
        initial=initial,
        outputs=lambda images, _labels, *masks: network(images, masks),
        predict=lambda images: network(images, [])[0],
        units=[*filter(has_weights, [*network.blocks, network.auxiliary, *network.last_blocks])],
    )


def _sequence(sequence: Sequence[Layer], num_inputs: int) -> nn.Sequential:
    return nn.Sequential(
        *(_module(layer, num_outputs(sequence[:place], num_inputs)) for place, layer in enumerate(sequence))
    )


def _module(layer: Layer, num_inputs: int) -> nn.Module:
    match layer:
        case Convolution():
            return ConvolutionNorm(
                num_inputs,
                layer.outputs,
                size=layer.size,
                stride=layer.stride,
                pad=layer.pad,
                epsilon=EPSILON,
            )
        case Branches():
            return Joined({name: _sequence(branch, num_inputs) for name, branch in layer.sequences.items()})
        case AveragePool():
            pad = layer.size // 2 if layer.padded else 0
            return nn.AvgPool2d(layer.size, layer.stride, pad, count_include_pad=False)
        case _:
            return nn.MaxPool2d(3, 2)
