"""ResNet-50 in TensorFlow. Axis letters: N samples, H height, W width, C channels."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from dlscale.models.frameworks._tensorflow import objective
from dlscale.models.frameworks._tensorflow_layers import (
    ConvolutionNorm,
    Dense,
    Updates,
    mean_cross_entropy,
)
from dlscale.models.frameworks._tensorflow_layers import Network as Variables
from dlscale.models.frameworks._tensorflow_optimizers import MomentumSgd
from dlscale.models.frameworks._tensorflow_replica import Forward, TensorFlowProgram, Update
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


class Residual(tf.Module):  # type: ignore[misc]
    """A bottleneck."""

    def __init__(self, network: Variables, name: str, block: Bottleneck) -> None:
        super().__init__()
        self.reduce = ConvolutionNorm(
            network, f"{name}.reduce", inputs=block.inputs, outputs=block.width, size=1
        )
        self.spatial = ConvolutionNorm(
            network,
            f"{name}.spatial",
            inputs=block.width,
            outputs=block.width,
            size=3,
            stride=block.stride,
            pad=(1, 1),
        )
        self.expand = ConvolutionNorm(
            network, f"{name}.expand", inputs=block.width, outputs=block.outputs, size=1, relu=False
        )
        self.shortcut: ConvolutionNorm | None = None
        if block.projects:
            self.shortcut = ConvolutionNorm(
                network,
                f"{name}.shortcut",
                inputs=block.inputs,
                outputs=block.outputs,
                size=1,
                stride=block.stride,
                relu=False,
            )

    def __call__(self, values: Any, updates: Updates) -> Any:
        """(N, H', W', outputs) of (N, H, W, inputs)."""
        residual = self.expand(self.spatial(self.reduce(values, updates), updates), updates)
        shortcut = values if self.shortcut is None else self.shortcut(values, updates)
        return tf.nn.relu(residual + shortcut)


class ResNet50(Variables):
    """The network up to its logits, (N, classes)."""

    def __init__(self, network: Network, *, num_channels: int, num_classes: int) -> None:
        super().__init__()
        self.stem = ConvolutionNorm(
            self, "stem", inputs=num_channels, outputs=network.num_filters, size=7, stride=2, pad=(3, 3)
        )
        self.stages = [
            [Residual(self, f"stages.{stage}.{place}", block) for place, block in enumerate(blocks)]
            for stage, blocks in enumerate(network.stages)
        ]
        self.classifier = Dense(self, "classifier", inputs=network.num_features, outputs=num_classes)

    def __call__(self, images: Any, updates: Updates) -> Any:
        """Logits (N, classes) of images (N, H, W, C); without `updates` by the running statistics."""
        values = self.stem(images, updates)
        values = self.max_pool(values, 3, 2, pad=(1, 1))
        for stage in self.stages:
            for block in stage:
                values = block(values, updates)
        return self.classifier(self.global_mean(values))


def program(preset: Preset, *, gate: bool) -> TensorFlowProgram:
    """The network of a preset and its one objective."""
    network = ResNet50(
        NETWORKS[preset.name],
        num_channels=preset.input_shape[0],
        num_classes=preset.num_classes,
    )

    def make_optimizer() -> MomentumSgd:
        return MomentumSgd(learning_rate=preset.learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)

    def forward(images: Any, labels: Any) -> Forward:
        """Mean softmax cross-entropy."""
        updates: list[Update] = []
        loss = mean_cross_entropy(network(images, updates), labels)
        return Forward(losses=[loss], updates=updates)

    return TensorFlowProgram(
        networks=[network],
        objectives=[objective(network, make_optimizer, gate=gate)],
        initial=initial_of_gate if gate else initial,
        forward=forward,
        outputs=lambda images, _labels: [network(images, [])],
        predict=lambda images: network.on_whole(images, None),
    )
