"""CosmoGAN in TensorFlow. Axis letters: N samples, H height, W width, C channels; padding as in `_torch.py`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import tensorflow as tf

from dlscale.models.cosmogan import (
    EPSILON,
    KERNEL_SIZE,
    LATENT_SIZE,
    LEAKY_SLOPE,
    MOMENTUM,
    NETWORKS,
    NUM_CONVOLUTIONS,
    Network,
    initial,
)
from dlscale.models.frameworks._tensorflow import objective
from dlscale.models.frameworks._tensorflow_layers import (
    BatchNorm,
    Convolution,
    Dense,
    TransposedConvolution,
    Updates,
)
from dlscale.models.frameworks._tensorflow_layers import Network as Variables
from dlscale.models.frameworks._tensorflow_optimizers import Adam
from dlscale.models.frameworks._tensorflow_replica import Forward, TensorFlowProgram, Update
from dlscale.models.workload import Preset

PAD = (2, 1)


class Generator(Variables):
    """From z to maps in (-1, 1)."""

    def __init__(self, network: Network, *, size: int) -> None:
        super().__init__()
        widths = network.widths[::-1]
        self.grid = size >> NUM_CONVOLUTIONS
        self.dense = Dense(self, "dense", inputs=LATENT_SIZE, outputs=self.grid**2 * widths[0])
        self.convolutions = [
            TransposedConvolution(
                self, f"convolutions.{index}", inputs=before, outputs=after, size=KERNEL_SIZE, pad=PAD
            )
            for index, (before, after) in enumerate(pairwise(widths))
        ]
        self.norms = [_norm(self, index, channels=width) for index, width in enumerate(widths[:-1])]

    def __call__(self, z: Any, updates: Updates) -> Any:
        """Maps (N, H, W, 1) of z (N, LATENT_SIZE)."""
        values = self.dense(z)
        values = tf.reshape(values, (-1, self.grid, self.grid, values.shape[1] // self.grid**2))
        values = self.own_rows(values)
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            values = convolution(tf.nn.relu(norm(values, updates)))
        return tf.tanh(values)


class Discriminator(Variables):
    """From maps to one logit each; above 0 it takes a map for real."""

    def __init__(self, network: Network, *, size: int) -> None:
        super().__init__()
        widths = network.widths
        self.convolutions = [
            Convolution(
                self,
                f"convolutions.{index}",
                inputs=before,
                outputs=after,
                size=KERNEL_SIZE,
                stride=2,
                pad=PAD,
            )
            for index, (before, after) in enumerate(pairwise(widths))
        ]
        self.norms = [_norm(self, index, channels=width) for index, width in enumerate(widths[2:])]
        num_pixels = (size >> NUM_CONVOLUTIONS) ** 2
        self.dense = Dense(self, "dense", inputs=num_pixels * widths[-1], outputs=1, of_maps=True)

    def __call__(self, maps: Any, updates: Updates) -> Any:
        """Logits (N, 1) of maps (N, H, W, 1)."""
        first, *others = self.convolutions
        values = tf.nn.leaky_relu(first(maps), LEAKY_SLOPE)
        for norm, convolution in zip(self.norms, others, strict=True):
            values = tf.nn.leaky_relu(norm(convolution(values), updates), LEAKY_SLOPE)
        return self.dense(values)


def program(preset: Preset, *, gate: bool) -> TensorFlowProgram:
    """Both networks and their objectives, the discriminator's first."""
    network = NETWORKS[preset.name]
    size = preset.input_shape[1]
    discriminator = Discriminator(network, size=size)
    generator = Generator(network, size=size)

    def forward(maps: Any, z: Any, flip: Any) -> Forward:
        """Sums and means of cross-entropies, as in `_torch.py`; where flip (1,) is 1, labels are exchanged."""
        of_real: list[Update] = []
        of_generated: list[Update] = []
        of_generator: list[Update] = []
        real = tf.cast(discriminator(maps, of_real), tf.float32)
        generated = tf.cast(discriminator(generator(z, of_generator), of_generated), tf.float32)
        sign = 1 - 2 * tf.cast(flip, tf.float32)
        return Forward(
            losses=[
                tf.reduce_mean(tf.nn.softplus(-sign * real))
                + tf.reduce_mean(tf.nn.softplus(sign * generated)),
                tf.reduce_mean(tf.nn.softplus(-generated)),
            ],
            updates=[*_one_after_the_other(of_real, of_generated), *of_generator],
        )

    def adam() -> Any:
        return Adam(preset.learning_rate, beta1=network.beta1)

    return TensorFlowProgram(
        networks=[discriminator, generator],
        objectives=[
            objective(discriminator, adam, gate=gate, prefix="discriminator."),
            objective(generator, adam, gate=gate, prefix="generator."),
        ],
        initial=initial,
        forward=forward,
        outputs=lambda maps, z, flip: [generator.gathered(generator(z, [])), discriminator(maps, [])],  # noqa: ARG005
        predict=lambda z: generator.on_whole(z, None),
    )


def _norm(network: Variables, index: int, *, channels: int) -> BatchNorm:
    return BatchNorm(network, f"norms.{index}", channels=channels, momentum=MOMENTUM, epsilon=EPSILON)


def _one_after_the_other(first: list[Update], second: list[Update]) -> list[Update]:
    """Updates of two passes, both left as if they were the only one: the second now starts from the first's."""
    return [
        (variable, after_second + (1 - MOMENTUM) * (after_first - variable))
        for (variable, after_first), (_, after_second) in zip(first, second, strict=True)
    ]
