"""HEP-CNN in TensorFlow. Axis letters: N samples, H height, W width, C channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import tensorflow as tf

from dlscale.models.frameworks._tensorflow import objective
from dlscale.models.frameworks._tensorflow_layers import Convolution, Dense, dropped
from dlscale.models.frameworks._tensorflow_layers import Network as Variables
from dlscale.models.frameworks._tensorflow_optimizers import Adam
from dlscale.models.frameworks._tensorflow_replica import Forward, TensorFlowProgram
from dlscale.models.hep_cnn import KEEP_PROBABILITY, NETWORKS, Network, initial
from dlscale.models.workload import Preset


class HepCnn(Variables):
    """The network up to its logits, (N, 2)."""

    def __init__(self, network: Network, *, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        channels, height, width = input_shape
        widths = [channels, *[network.num_filters] * network.num_convolutions]
        self.convolutions = [
            Convolution(self, f"convolutions.{index}", inputs=before, outputs=after, size=3, pad=(1, 1))
            for index, (before, after) in enumerate(pairwise(widths))
        ]
        self.hidden: Dense | None = None
        if network.num_hidden:
            num_pixels = (height >> network.num_convolutions) * (width >> network.num_convolutions)
            self.hidden = Dense(
                self,
                "hidden",
                inputs=network.num_filters * num_pixels,
                outputs=network.num_hidden,
                of_maps=True,
            )
        self.classifier = Dense(
            self, "classifier", inputs=network.num_hidden or network.num_filters, outputs=2
        )

    def __call__(self, images: Any, masks: Sequence[Any]) -> Any:
        """Logits (N, 2) of images (N, H, W, C); without masks no value is dropped."""
        kept = iter(masks)
        values = images
        for index, convolution in enumerate(self.convolutions):
            values = tf.nn.relu(convolution(values))
            if self.hidden is None and index == len(self.convolutions) - 1:
                values = self.global_mean(values)
            else:
                values = _drop(self.max_pool(values, 2, 2), kept)
        if self.hidden is not None:
            values = _drop(tf.nn.relu(self.hidden(values)), kept)
        return self.classifier(values)


def program(preset: Preset, *, gate: bool) -> TensorFlowProgram:
    """The network of a preset and its one objective."""
    layers = NETWORKS[preset.name]
    network = HepCnn(layers, input_shape=preset.input_shape)

    def forward(images: Any, labels: Any, *masks: Any) -> Forward:
        """Mean softmax cross-entropy; every event counts alike, as in the published benchmark runs."""
        logits = tf.cast(network(images, masks), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        return Forward(losses=[tf.reduce_mean(losses)], updates=[])

    return TensorFlowProgram(
        networks=[network],
        objectives=[objective(network, lambda: Adam(preset.learning_rate), gate=gate)],
        initial=initial,
        forward=forward,
        outputs=lambda images, labels, *masks: [network(images, masks)],  # noqa: ARG005
        predict=lambda images: network.on_whole(images, []),
    )


def _drop(values: Any, masks: Iterator[Any]) -> Any:
    mask = next(masks, None)
    return values if mask is None else dropped(values, mask, keep_probability=KEEP_PROBABILITY)
