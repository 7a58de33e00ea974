"""Layers and loss of the JAX networks: functions of the weights by name. Images are (N, H, W, C)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

MOMENTUM, EPSILON = 0.1, 1e-5  # of batch norm: torch's


def convolution(weights: Mapping[str, Any], name: str, values: Any, *, stride: int = 1, pad: int = 0) -> Any:
    """(N, H', W', outputs) of (N, H, W, inputs), with a bias where the layer has one."""
    outputs = lax.conv_general_dilated(
        values,
        weights[f"{name}.weight"],
        (stride, stride),
        ((pad, pad), (pad, pad)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    bias = weights.get(f"{name}.bias")
    return outputs if bias is None else outputs + bias


def dense(weights: Mapping[str, Any], name: str, values: Any) -> Any:
    """(N, outputs) of (N, inputs)."""
    return values @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def halved(values: Any) -> Any:
    """The largest of every 2 x 2 pixels, whose numbers are even."""
    num, height, width, channels = values.shape
    return jnp.max(values.reshape(num, height // 2, 2, width // 2, 2, channels), axis=(2, 4))


def dropped(values: Any, mask: Any, *, keep_probability: float) -> Any:
    """Values where `mask` is 1, scaled up so that their mean stays; 0 elsewhere."""
    return values * mask.astype(values.dtype) * (1 / keep_probability)


class BatchNorm:
    """Batch norm over all but the last axis of (N, H, W, C), with scale and shift, for one pass through a network.

    While `training` by the batch's own statistics, and `remembered` holds the running ones of after it: 0.9 of those
    before and 0.1 of the batch's, the variance that is not biased, as in torch.
    """

    def __init__(self, remembered: Mapping[str, Any], *, training: bool) -> None:
        self.remembered, self._training = dict(remembered), training

    def __call__(self, weights: Mapping[str, Any], name: str, values: Any) -> Any:
        mean_name, variance_name = f"{name}.running_mean", f"{name}.running_var"
        mean, variance = self.remembered[mean_name], self.remembered[variance_name]
        if self._training:
            count = values.size // values.shape[-1]
            seen_mean, seen_variance = jnp.mean(values, axis=(0, 1, 2)), jnp.var(values, axis=(0, 1, 2))
            unbiased = seen_variance * (count / max(count - 1, 1))
            self.remembered[mean_name] = mean + MOMENTUM * (lax.stop_gradient(seen_mean) - mean)
            self.remembered[variance_name] = variance + MOMENTUM * (lax.stop_gradient(unbiased) - variance)
            mean, variance = seen_mean, seen_variance
        scale = weights[f"{name}.weight"] * lax.rsqrt(variance + EPSILON)
        return (values - mean) * scale + weights[f"{name}.bias"]


def mean_cross_entropy(logits: Any, labels: Any) -> Any:
    """Mean softmax cross-entropy of logits (N, K) and labels (N,)."""
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -jnp.mean(picked)
