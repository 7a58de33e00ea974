"""HEP-CNN in JAX. Axis letters: N samples, H height, W width, C channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from dlscale.models.frameworks._jax import JaxProgram, Shapes
from dlscale.models.frameworks._jax_layers import convolution, dense, dropped, halved, mean_cross_entropy
from dlscale.models.frameworks._jax_optimizers import Rule
from dlscale.models.hep_cnn import KEEP_PROBABILITY, NETWORKS, Network, initial
from dlscale.models.optimizers import OptimizerRule
from dlscale.models.workload import Preset


def shapes(network: Network, *, input_shape: tuple[int, ...]) -> Shapes:
    """Names and shapes of the weights, in torch's order."""
    channels, height, width = input_shape
    found: list[tuple[str, tuple[int, ...]]] = []
    widths = [channels, *[network.num_filters] * network.num_convolutions]
    for index, (before, after) in enumerate(pairwise(widths)):
        found += [
            (f"convolutions.{index}.weight", (3, 3, before, after)),
            (f"convolutions.{index}.bias", (after,)),
        ]
    if network.num_hidden:
        num_pixels = (height >> network.num_convolutions) * (width >> network.num_convolutions)
        inputs = network.num_filters * num_pixels
        found += [("hidden.weight", (inputs, network.num_hidden)), ("hidden.bias", (network.num_hidden,))]
    inputs = network.num_hidden or network.num_filters
    return [*found, ("classifier.weight", (inputs, 2)), ("classifier.bias", (2,))]


def logits(network: Network, weights: Mapping[str, Any], images: Any, masks: Sequence[Any]) -> Any:
    """Logits (N, 2) of images (N, H, W, C); without masks no value is dropped."""
    kept, values = iter(masks), images
    for index in range(network.num_convolutions):
        values = jax.nn.relu(convolution(weights, f"convolutions.{index}", values, pad=1))
        if network.num_hidden is None and index == network.num_convolutions - 1:
            values = jnp.mean(values, axis=(1, 2))
        else:
            values = _drop(halved(values), kept)
    if network.num_hidden:
        values = values.reshape(values.shape[0], -1)
        values = _drop(jax.nn.relu(dense(weights, "hidden", values)), kept)
    return dense(weights, "classifier", values)


def program(preset: Preset, *, gate: bool) -> JaxProgram:  # noqa: ARG001
    """The network of a preset and its loss: mean cross-entropy, every event counts alike."""
    network = NETWORKS[preset.name]

    def loss(weights: Any, remembered: Any, images: Any, labels: Any, *masks: Any) -> tuple[Any, Any]:
        return mean_cross_entropy(logits(network, weights, images, masks), labels), remembered

    return JaxProgram(
        shapes=shapes(network, input_shape=preset.input_shape),
        remembered={},
        rule=Rule(OptimizerRule(name="adam")),
        initial=initial,
        loss=loss,
        outputs=lambda weights, _remembered, images, _labels, *masks: logits(network, weights, images, masks),
        predict=lambda weights, _remembered, images: logits(network, weights, images, []),
    )


def _drop(values: Any, masks: Iterator[Any]) -> Any:
    mask = next(masks, None)
    return values if mask is None else dropped(values, mask, keep_probability=KEEP_PROBABILITY)
