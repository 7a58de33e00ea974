"""Layers and loss of the TensorFlow networks: plain variables, named as torch names its parameters, and
`tf.nn` operations.

A layer computes in the type of its input, whatever that of its variables is (float32). The names make weights of
both frameworks comparable one by one. Of a network with `exchanges`, layers compute a rank's rows of every map.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from dlscale.models.parallel._tensorflow import Exchanges, batch_norm

Updates = list[tuple[Any, Any]] | None
"""Where batch norm leaves (variable, next value) while training; None means: use the running statistics."""


class Network(tf.Module):  # type: ignore[misc]
    """A module that knows its variables in the order of their creation, `tf.Module` sorts them by attribute.

    `names` are as given: a graph of TensorFlow 1 gives the second network's "dense.bias" the name "dense.bias_1".
    """

    def __init__(self) -> None:
        super().__init__()
        self.exchanges: Exchanges | None = None  # the replica sets them where it has rows of every map
        self.dtype = tf.float32  # to compute in, where inputs are no real numbers; the replica sets it
        self.ordered: list[Any] = []
        self.names: list[str] = []

    def variable(
        self, name: str, shape: tuple[int, ...], *, value: float = 0.0, trainable: bool = True
    ) -> Any:
        """A new float32 variable, filled with `value` until the replica draws its first weights."""
        # What is not trained, batch norm's statistics, stays each rank's own under a strategy.
        local = tf.VariableSynchronization.AUTO if trainable else tf.VariableSynchronization.ON_READ
        made = tf.Variable(tf.fill(shape, value), name=name, trainable=trainable, synchronization=local)
        self.ordered.append(made)
        self.names.append(name)
        return made

    def on_whole(self, *inputs: Any) -> Any:
        """What it makes of whole samples, without its neighbours."""
        exchanges, self.exchanges = self.exchanges, None
        try:
            return self(*inputs)
        finally:
            self.exchanges = exchanges

    def max_pool(self, values: Any, size: int, stride: int, *, pad: tuple[int, int] = (0, 0)) -> Any:
        """(N, H', W', C) of (N, H, W, C), whose values are at least 0 where there is a `pad`: it is of zeros.

        TensorFlow's pooling with explicit padding takes seven times as long, forward and backward.
        """
        values = _padded(self, values, size=size, stride=stride, pad=(pad, pad))
        return tf.nn.max_pool2d(values, size, stride, "VALID")

    def global_mean(self, values: Any) -> Any:
        """(N, C): means of whole maps over height and width."""
        if self.exchanges is None:
            return tf.reduce_mean(values, axis=(1, 2))
        return self.exchanges.mean(values)

    def gathered(self, values: Any) -> Any:
        """Whole maps of own rows; `own_rows` is the reverse."""
        return values if self.exchanges is None else self.exchanges.gathered(values)

    def own_rows(self, values: Any) -> Any:
        return values if self.exchanges is None else self.exchanges.own(values)


class Convolution(tf.Module):  # type: ignore[misc]
    """A square convolution of images (N, H, W, C); `pad` is (before, after) along height and width."""

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
        bias: bool = True,
    ) -> None:
        super().__init__()
        height, width = (size, size) if isinstance(size, int) else size
        self.weight = network.variable(f"{name}.weight", (height, width, inputs, outputs))
        self.bias = network.variable(f"{name}.bias", (outputs,)) if bias else None
        self._network, self._stride = network, stride
        self._pad = pad if isinstance(pad[0], tuple) else (pad, pad)
        same = ((height - 1) // 2, height // 2), ((width - 1) // 2, width // 2)
        self._keeps_size = stride == 1 and self._pad == same

    def __call__(self, values: Any) -> Any:
        """(N, H', W', outputs) of (N, H, W, inputs).

        Not with TensorFlow's explicit padding, whose gradients have no oneDNN kernels: forward and backward took up
        to 1.5 times as long in float32, and 15 to 70 times in bfloat16 (3x3 to 7x7 kernels, 1 core).
        """
        padding = "SAME" if self._keeps_size and self._network.exchanges is None else "VALID"
        if padding == "VALID":
            size = self.weight.shape[0]
            values = _padded(self._network, values, size=size, stride=self._stride, pad=self._pad)
        outputs = tf.nn.conv2d(values, tf.cast(self.weight, values.dtype), self._stride, padding)
        return outputs if self.bias is None else tf.nn.bias_add(outputs, tf.cast(self.bias, values.dtype))


class TransposedConvolution(tf.Module):  # type: ignore[misc]
    """The adjoint of a convolution with stride 2 and `pad`, whose images it doubles in height and width."""

    def __init__(
        self, network: Network, name: str, *, inputs: int, outputs: int, size: int, pad: tuple[int, int]
    ) -> None:
        super().__init__()
        self.weight = network.variable(f"{name}.weight", (size, size, outputs, inputs))
        self.bias = network.variable(f"{name}.bias", (outputs,))
        self._network, self._outputs, self._size, self._pad = network, outputs, size, pad

    def __call__(self, values: Any) -> Any:
        """(N, 2 H, 2 W, outputs) of (N, H, W, inputs): the whole, without what a convolution would have padded."""
        before, after = self._pad
        above = below = 0  # rows of the neighbours that reach into own ones
        if self._network.exchanges is not None:
            above, below = (self._size - 1 - before) // 2, (before - 1) // 2 + 1
            values = self._network.exchanges.halo(values, above=above, below=below)
        num, height, width, _ = values.shape
        whole_height, whole_width = (2 * (pixels - 1) + self._size for pixels in (height, width))
        outputs = tf.nn.conv2d_transpose(
            values,
            tf.cast(self.weight, values.dtype),
            (tf.shape(values)[0] if num is None else num, whole_height, whole_width, self._outputs),
            strides=2,
            padding="VALID",
        )
        first, last = before + 2 * above, whole_height - after - 2 * below
        outputs = outputs[:, first:last, before : whole_width - after]
        return tf.nn.bias_add(outputs, tf.cast(self.bias, values.dtype))


class Dense(tf.Module):  # type: ignore[misc]
    """A dense layer with bias; `of_maps`: of maps (N, H, W, C), of which each rank may have some rows."""

    def __init__(
        self, network: Network, name: str, *, inputs: int, outputs: int, of_maps: bool = False
    ) -> None:
        super().__init__()
        self._network, self._of_maps = network, of_maps
        self.weight = network.variable(f"{name}.weight", (inputs, outputs))
        self.bias = network.variable(f"{name}.bias", (outputs,))

    def __call__(self, values: Any) -> Any:
        """(N, outputs) of (N, inputs), or of maps with so many numbers."""
        weight = tf.cast(self.weight, values.dtype)
        if self._of_maps:
            values = tf.reshape(values, (-1, math.prod(values.shape[1:])))
        if self._of_maps and self._network.exchanges is not None:
            own = self._network.exchanges.rows.own(weight.shape[0])  # H is the outermost axis
            outputs = self._network.exchanges.summed(tf.matmul(values, weight[own]))
        else:
            outputs = tf.matmul(values, weight)
        return tf.nn.bias_add(outputs, tf.cast(self.bias, values.dtype))


class BatchNorm(tf.Module):  # type: ignore[misc]
    """Batch norm over all but the last axis of (N, H, W, C), with scale and shift.

    `momentum` is torch's: the weight of the new batch in the running statistics. The variance that is
    remembered is the unbiased one, in both frameworks.
    """

    def __init__(
        self, network: Network, name: str, *, channels: int, momentum: float = 0.1, epsilon: float = 1e-5
    ) -> None:
        super().__init__()
        self.weight = network.variable(f"{name}.weight", (channels,), value=1.0)
        self.bias = network.variable(f"{name}.bias", (channels,))
        self.mean = network.variable(f"{name}.running_mean", (channels,), trainable=False)
        self.variance = network.variable(f"{name}.running_var", (channels,), value=1.0, trainable=False)
        self._network, self._momentum, self._epsilon = network, momentum, epsilon

    def __call__(self, values: Any, updates: Updates) -> Any:
        """Normalised values; while training by the batch's own statistics, and updates are left."""
        kind = tf.float64 if values.dtype == tf.float64 else tf.float32
        scale, shift = tf.cast(self.weight, kind), tf.cast(self.bias, kind)
        running = self.mean, self.variance
        if updates is None:
            statistics = [tf.cast(variable, kind) for variable in running]
            return batch_norm(values, scale, shift, *statistics, epsilon=self._epsilon)[0]
        normalise = batch_norm if self._network.exchanges is None else self._network.exchanges.normalised
        normalised, *statistics = normalise(values, scale, shift, epsilon=self._epsilon)
        for variable, seen in zip(running, statistics, strict=True):
            change = tf.stop_gradient(tf.cast(seen, tf.float32)) - variable
            updates.append((variable, variable + self._momentum * change))
        return normalised


def dropped(values: Any, mask: Any, *, keep_probability: float) -> Any:
    """Values where `mask` is 1, scaled up so that their mean stays; 0 elsewhere."""
    return values * tf.cast(mask, values.dtype) * (1 / keep_probability)


def _padded(network: Network, values: Any, *, size: int, stride: int, pad: Any) -> Any:
    """Values with zeros, and with neighbours' rows, around them: what `size` rows at a time, every `stride`, read."""
    if network.exchanges is not None:
        (above, _), sides = pad
        below = max(0, size - stride - above)
        return network.exchanges.halo(values, above=above, below=below, sides=sides)
    return tf.pad(values, ((0, 0), *pad, (0, 0))) if pad != ((0, 0), (0, 0)) else values


class ConvolutionNorm(tf.Module):  # type: ignore[misc]
    """A `Convolution` without bias, batch norm and, unless `relu` is False, ReLU."""

    def __init__(
        self, network: Network, name: str, *, epsilon: float = 1e-5, relu: bool = True, **convolution: Any
    ) -> None:
        super().__init__()
        self.convolution = Convolution(network, f"{name}.convolution", bias=False, **convolution)
        self.norm = BatchNorm(network, f"{name}.norm", channels=convolution["outputs"], epsilon=epsilon)
        self._relu = relu

    def __call__(self, values: Any, updates: Updates) -> Any:
        """(N, H', W', outputs) of (N, H, W, inputs)."""
        normalised = self.norm(self.convolution(values), updates)
        return tf.nn.relu(normalised) if self._relu else normalised


def mean_cross_entropy(logits: Any, labels: Any) -> Any:
    """Mean softmax cross-entropy of logits (N, K) and labels (N,), in float32."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.cast(logits, tf.float32))
    return tf.reduce_mean(losses)
