"""The layer, the loss and the optimizer that the TensorFlow image classifiers share."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from dlscale.models._tensorflow_layers import BatchNorm, Convolution, Network, Updates
from dlscale.models.image_classifier import decays


class ConvolutionNorm(tf.Module):  # type: ignore[misc]
    """A convolution without bias, batch norm and, unless `relu` is False, ReLU."""

    def __init__(
        self,
        network: Network,
        name: str,
        *,
        inputs: int,
        outputs: int,
        size: int | tuple[int, int],
        stride: int = 1,
        pad: tuple[int, int] | tuple[tuple[int, int], tuple[int, int]] = (0, 0),
        epsilon: float = 1e-5,
        relu: bool = True,
    ) -> None:
        super().__init__()
        self.convolution = Convolution(
            network,
            f"{name}.convolution",
            inputs=inputs,
            outputs=outputs,
            size=size,
            stride=stride,
            pad=pad,
            bias=False,
        )
        self.norm = BatchNorm(network, f"{name}.norm", channels=outputs, epsilon=epsilon)
        self._relu = relu

    def __call__(self, values: Any, updates: Updates) -> Any:
        """(N, H', W', outputs) of (N, H, W, inputs)."""
        found = self.norm(self.convolution(values), updates)
        return tf.nn.relu(found) if self._relu else found


class MomentumSgd(tf.compat.v1.train.MomentumOptimizer):  # type: ignore[misc]
    """SGD with Nesterov momentum; `weight_decay` times the weight joins the gradient where it applies.

    It does so where the update is made, behind the exchange of gradients: it is added once, whatever the strategy.
    """

    def __init__(self, *, learning_rate: float, momentum: float, weight_decay: float) -> None:
        super().__init__(learning_rate, momentum, use_nesterov=True)
        self._weight_decay = weight_decay

    def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
        if decays(var.name):
            grad = grad + self._weight_decay * var
        return super()._resource_apply_dense(grad, var)


def mean_cross_entropy(logits: Any, labels: Any) -> Any:
    """Mean softmax cross-entropy of logits (N, K) and labels (N,), in float32."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.cast(logits, tf.float32))
    return tf.reduce_mean(losses)
