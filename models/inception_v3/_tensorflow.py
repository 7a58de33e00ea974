"""Inception v3 in TensorFlow. Axis letters: N samples, H height, W width, C channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from dlscale.models.frameworks._tensorflow import objective
from dlscale.models.frameworks._tensorflow_layers import (
    ConvolutionNorm,
    Dense,
    Updates,
    dropped,
    mean_cross_entropy,
)
from dlscale.models.frameworks._tensorflow_layers import Network as Variables
from dlscale.models.frameworks._tensorflow_optimizers import Sgd
from dlscale.models.frameworks._tensorflow_replica import Forward, TensorFlowProgram, Update
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

Module = Callable[[Any, Updates], Any]


class Joined(tf.Module):  # type: ignore[misc]
    """Branches."""

    def __init__(self, branches: Sequence[Module]) -> None:
        super().__init__()
        self.branches = branches

    def __call__(self, values: Any, updates: Updates) -> Any:
        """(N, H', W', sum of C) of (N, H, W, C)."""
        return tf.concat([branch(values, updates) for branch in self.branches], axis=3)


class Sequential(tf.Module):  # type: ignore[misc]
    """Layers, one after the other."""

    def __init__(self, network: Variables, name: str, sequence: Sequence[Layer], num_inputs: int) -> None:
        super().__init__()
        self.modules = [
            _module(network, f"{name}.{place}", layer, num_outputs(sequence[:place], num_inputs))
            for place, layer in enumerate(sequence)
        ]

    def __call__(self, values: Any, updates: Updates) -> Any:
        """(N, H', W', C') of (N, H, W, C)."""
        for module in self.modules:
            values = module(values, updates)
        return values


class InceptionV3(Variables):
    """The network up to its logits and, while training, those of the auxiliary head, (N, classes) each."""

    def __init__(self, network: Layers, *, num_channels: int, num_classes: int) -> None:
        super().__init__()
        self.stem = Sequential(self, "stem", network.stem, num_channels)
        num_stem = num_outputs(network.stem, num_channels)
        self.blocks = Sequential(self, "blocks", network.blocks, num_stem)
        num_middle = num_outputs(network.blocks, num_stem)
        self.auxiliary = Sequential(self, "auxiliary", network.auxiliary, num_middle)
        self.auxiliary_classifier = Dense(
            self,
            "auxiliary_classifier",
            inputs=num_outputs(network.auxiliary, num_middle),
            outputs=num_classes,
        )
        self.last_blocks = Sequential(self, "last_blocks", network.last_blocks, num_middle)
        self.classifier = Dense(
            self, "classifier", inputs=num_outputs(network.last_blocks, num_middle), outputs=num_classes
        )

    def __call__(self, images: Any, masks: Sequence[Any], updates: Updates) -> list[Any]:
        """Logits of images (N, H, W, C), and with `updates` auxiliary ones; without a mask nothing is dropped."""
        values = self.blocks(self.stem(images, updates), updates)
        features = tf.reduce_mean(self.last_blocks(values, updates), axis=(1, 2))
        for mask in masks:
            features = dropped(features, mask, keep_probability=KEEP_PROBABILITY)
        logits = [self.classifier(features)]
        if updates is not None:
            auxiliary = tf.reduce_mean(self.auxiliary(values, updates), axis=(1, 2))
            logits.append(self.auxiliary_classifier(auxiliary))
        return logits


def program(preset: Preset, *, gate: bool) -> TensorFlowProgram:
    """The network of a preset and its one objective."""
    network = InceptionV3(
        layers(DIVISORS[preset.name]), num_channels=preset.input_shape[0], num_classes=preset.num_classes
    )

    def make_optimizer() -> Sgd:
        return Sgd(preset.learning_rate)

    def forward(images: Any, labels: Any, *masks: Any) -> Forward:
        """Mean softmax cross-entropy, and 0.4 times that of the auxiliary head."""
        updates: list[Update] = []
        logits, auxiliary = network(images, masks, updates)
        loss = mean_cross_entropy(logits, labels) + AUXILIARY_WEIGHT * mean_cross_entropy(auxiliary, labels)
        return Forward(losses=[loss], updates=updates)

    return TensorFlowProgram(
        networks=[network],
        objectives=[objective(network, make_optimizer, gate=gate)],
        initial=initial,
        forward=forward,
        outputs=lambda images, _labels, *masks: network(images, masks, []),
        predict=lambda images: network(images, [], None)[0],
    )


def _module(network: Variables, name: str, layer: Layer, num_inputs: int) -> Module:
    match layer:
        case Convolution():
            down, across = layer.pad
            return ConvolutionNorm(
                network,
                name,
                inputs=num_inputs,
                outputs=layer.outputs,
                size=layer.size,
                stride=layer.stride,
                pad=((down, down), (across, across)) if layer.padded else (0, 0),
                epsilon=EPSILON,
            )
        case Branches():
            return Joined(
                [
                    Sequential(network, f"{name}.{branch}", sequence, num_inputs)
                    for branch, sequence in layer.sequences.items()
                ]
            )
        case AveragePool():
            padding = "SAME" if layer.padded else "VALID"
            return lambda values, _updates: tf.nn.avg_pool2d(values, layer.size, layer.stride, padding)
        case _:
            return lambda values, _updates: tf.nn.max_pool2d(values, 3, 2, "VALID")
