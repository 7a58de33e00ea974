"""ResNet-50 in torch. Axis letters: N samples, C channels, H height, W width."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn

from dlscale.models.frameworks._torch import TorchProgram, objective
from dlscale.models.frameworks._torch_layers import ConvolutionNorm, GlobalMean
from dlscale.models.frameworks._torch_optimizers import momentum_sgd
from dlscale.models.resnet50 import (
    MOMENTUM,
    NETWORKS,
    WEIGHT_DECAY,
    Bottleneck,
    Network,
    initial,
    initial_of_gate,
)
from dlscale.models.workload import Preset


class Residual(nn.Module):
    """A bottleneck."""

    def __init__(self, block: Bottleneck) -> None:
        super().__init__()
        self.reduce = ConvolutionNorm(block.inputs, block.width, size=1)
        self.spatial = ConvolutionNorm(block.width, block.width, size=3, stride=block.stride, pad=1)
        self.expand = ConvolutionNorm(block.width, block.outputs, size=1, relu=False)
        self.shortcut: ConvolutionNorm | None = None
        if block.projects:
            self.shortcut = ConvolutionNorm(
                block.inputs, block.outputs, size=1, stride=block.stride, relu=False
            )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(N, outputs, H', W') of (N, inputs, H, W)."""
        residual: torch.Tensor = self.expand(self.spatial(self.reduce(values)))
        shortcut = values if self.shortcut is None else self.shortcut(values)
        return F.relu_(residual.add_(shortcut))  # in place, as in ConvolutionNorm


class ResNet50(nn.Module):
    """The network up to its logits, (N, classes)."""

    def __init__(self, network: Network, *, num_channels: int, num_classes: int) -> None:
        super().__init__()
        self.stem = ConvolutionNorm(num_channels, network.num_filters, size=7, stride=2, pad=3)
        self.pool, self.global_mean = nn.MaxPool2d(3, stride=2, padding=1), GlobalMean()
        self.stages = nn.Sequential(
            *(nn.Sequential(*(Residual(block) for block in stage)) for stage in network.stages)
        )
        self.classifier = nn.Linear(network.num_features, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, C, H, W)."""
        values = self.stages(self.pool(self.stem(images)))
        logits: torch.Tensor = self.classifier(self.global_mean(values))
        return logits


class ResNet50Loss(nn.Module):
    """Mean softmax cross-entropy."""

    def __init__(self, network: ResNet50) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Scalar loss of images (N, C, H, W) and labels (N,)."""
        return F.cross_entropy(self.network(images).float(), labels)


def program(preset: Preset, *, gate: bool) -> TorchProgram:
    """The network of a preset and its one objective."""
    network = ResNet50(
        NETWORKS[preset.name],
        num_channels=preset.input_shape[0],
        num_classes=preset.num_classes,
    )

    def make_optimizer(_parameters: object) -> torch.optim.Optimizer:
        return momentum_sgd(
            network, learning_rate=preset.learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
        )

    return TorchProgram(
        networks=[network],
        objectives=[objective(ResNet50Loss(network), network, make_optimizer, gate=gate)],
        initial=initial_of_gate if gate else initial,
        outputs=lambda images, _labels: [network(images)],
        predict=network,
        units=[block for stage in network.stages for block in stage.children()],
    )
