"""ResNet-50 in JAX. Axis letters: N samples, H height, W width, C channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dlscale.models.frameworks._jax import JaxProgram
from dlscale.models.frameworks._jax_layers import BatchNorm, convolution, dense, mean_cross_entropy
from dlscale.models.frameworks._jax_optimizers import Rule
from dlscale.models.optimizers import OptimizerRule
from dlscale.models.resnet50 import MOMENTUM, NETWORKS, WEIGHT_DECAY, Bottleneck, initial, initial_of_gate
from dlscale.models.workload import Preset


class Layer(NamedTuple):
    """A convolution without bias, and the batch norm behind it."""

    name: str
    inputs: int
    outputs: int
    size: int
    stride: int = 1

    def __call__(self, weights: Mapping[str, Any], norm: BatchNorm, values: Any) -> Any:
        """(N, H', W', outputs) of (N, H, W, inputs)."""
        convolved = convolution(
            weights, f"{self.name}.convolution", values, stride=self.stride, pad=self.size // 2
        )
        return norm(weights, f"{self.name}.norm", convolved)


class Residual(NamedTuple):
    """A bottleneck."""

    name: str
    block: Bottleneck

    def layers(self) -> Iterator[Layer]:
        """Its layers: reduce, spatial, expand and, where it projects, shortcut."""
        block = self.block
        yield Layer(f"{self.name}.reduce", block.inputs, block.width, 1)
        yield Layer(f"{self.name}.spatial", block.width, block.width, 3, block.stride)
        yield Layer(f"{self.name}.expand", block.width, block.outputs, 1)
        if block.projects:
            yield Layer(f"{self.name}.shortcut", block.inputs, block.outputs, 1, block.stride)

    def __call__(self, weights: Mapping[str, Any], norm: BatchNorm, values: Any) -> Any:
        """(N, H', W', outputs) of (N, H, W, inputs)."""
        reduce, spatial, expand, *shortcut = self.layers()
        residual = jax.nn.relu(reduce(weights, norm, values))
        residual = expand(weights, norm, jax.nn.relu(spatial(weights, norm, residual)))
        for layer in shortcut:
            values = layer(weights, norm, values)
        return jax.nn.relu(residual + values)


def program(preset: Preset, *, gate: bool) -> JaxProgram:
    """The network of a preset and its loss, mean cross-entropy."""
    network = NETWORKS[preset.name]
    stem = Layer("stem", preset.input_shape[0], network.num_filters, 7, 2)
    blocks = [
        Residual(f"stages.{stage}.{place}", block)
        for stage, blocks in enumerate(network.stages)
        for place, block in enumerate(blocks)
    ]
    layers = [stem, *(layer for block in blocks for layer in block.layers())]

    def logits(weights: Any, norm: BatchNorm, images: Any) -> Any:
        """Logits (N, classes) of images (N, H, W, C)."""
        values = jax.nn.relu(stem(weights, norm, images))
        padding = ((0, 0), (1, 1), (1, 1), (0, 0))
        values = lax.reduce_window(values, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), padding)
        for block in blocks:
            values = block(weights, norm, values)
        return dense(weights, "classifier", jnp.mean(values, axis=(1, 2)))

    def loss(weights: Any, remembered: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        norm = BatchNorm(remembered, training=True)
        return mean_cross_entropy(logits(weights, norm, images), labels), norm.remembered

    return JaxProgram(
        shapes=[
            *(entry for layer in layers for entry in _shapes(layer)),
            ("classifier.weight", (network.num_features, preset.num_classes)),
            ("classifier.bias", (preset.num_classes,)),
        ],
        remembered={
            f"{layer.name}.norm.{name}": np.full(layer.outputs, value, np.float32)
            for layer in layers
            for name, value in (("running_mean", 0.0), ("running_var", 1.0))
        },
        rule=Rule(OptimizerRule(name="sgd", momentum=MOMENTUM, weight_decay=WEIGHT_DECAY), nesterov=True),
        initial=initial_of_gate if gate else initial,
        loss=loss,
        outputs=lambda weights, remembered, images, _labels: logits(
            weights, BatchNorm(remembered, training=True), images
        ),
        predict=lambda weights, remembered, images: logits(
            weights, BatchNorm(remembered, training=False), images
        ),
    )


def _shapes(layer: Layer) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{layer.name}.convolution.weight", (layer.size, layer.size, layer.inputs, layer.outputs)
    yield f"{layer.name}.norm.weight", (layer.outputs,)
    yield f"{layer.name}.norm.bias", (layer.outputs,)
