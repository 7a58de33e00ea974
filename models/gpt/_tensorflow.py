"""GPT in TensorFlow. Axis letters: N samples, T tokens, D features, V vocabulary."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from dlscale.models.frameworks._tensorflow import objective
from dlscale.models.frameworks._tensorflow_layers import Dense, mean_cross_entropy
from dlscale.models.frameworks._tensorflow_layers import Network as Variables
from dlscale.models.frameworks._tensorflow_optimizers import Adam
from dlscale.models.frameworks._tensorflow_replica import Forward, TensorFlowProgram
from dlscale.models.gpt import EPSILON, NETWORKS, Network, initial
from dlscale.models.workload import Preset

MASKED = -1e9  # added to scores of tokens that come later: finite, or a product with 0 would not be a number
GELU = 2 * np.sqrt(2 / np.pi), 0.044715  # 0.5 x (1 + tanh(u / 2)) is x sigmoid(u)


class LayerNorm(tf.Module):  # type: ignore[misc]
    """Layer norm over the last axis, with scale and shift."""

    def __init__(self, network: Variables, name: str, *, width: int) -> None:
        super().__init__()
        self.weight = network.variable(f"{name}.weight", (width,), value=1.0)
        self.bias = network.variable(f"{name}.bias", (width,))

    def __call__(self, values: Any) -> Any:
        """(M, D) of (M, D), in float32."""
        return _normalised(values, tf.convert_to_tensor(self.weight), tf.convert_to_tensor(self.bias))


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _normalised(values: Any, weight: Any, bias: Any) -> Any:
    """With a gradient of its own, which takes half the passes through memory of one that is traced."""
    centered = values - tf.reduce_mean(values, axis=-1, keepdims=True)
    rate = tf.math.rsqrt(tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True) + EPSILON)
    scaled = centered * rate

    def gradients(upstream: Any) -> tuple[Any, Any, Any]:
        product = upstream * scaled
        inner = upstream * weight
        mean = tf.reduce_mean(inner, axis=-1, keepdims=True)
        slope = tf.reduce_mean(product * weight, axis=-1, keepdims=True)
        return (
            (inner - mean - scaled * slope) * rate,
            tf.reduce_sum(product, axis=0),
            tf.reduce_sum(upstream, axis=0),
        )

    return scaled * weight + bias, gradients


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _gelu(values: Any) -> Any:
    """GELU by tanh, in fewer passes through memory than `tf.nn.gelu`, which takes a power."""
    slope, cubic = GELU
    squares = tf.square(values)
    gate = tf.sigmoid(values * (slope + slope * cubic * squares))

    def gradient(upstream: Any) -> Any:
        inner = values * (slope + 3 * slope * cubic * squares)
        return upstream * gate * (1 + inner * (1 - gate))

    return values * gate, gradient


def _to_residual(layer: Dense, values: Any) -> Any:
    """What the layer makes of values, with its bias in float32: its gradient is a sum in the type that it has here."""
    outputs = tf.matmul(values, tf.cast(layer.weight, values.dtype))
    return tf.nn.bias_add(tf.cast(outputs, tf.float32), layer.bias)


class Attention(tf.Module):  # type: ignore[misc]
    """Layer norm, and causal attention of several heads."""

    def __init__(self, network: Variables, name: str, sizes: Network) -> None:
        super().__init__()
        self.norm = LayerNorm(network, f"{name}.norm", width=sizes.width)
        self.inputs = Dense(network, f"{name}.inputs", inputs=sizes.width, outputs=3 * sizes.width)
        self.projection = Dense(network, f"{name}.projection", inputs=sizes.width, outputs=sizes.width)
        self._num_heads, self._width = sizes.num_heads, sizes.width

    def __call__(self, values: Any, dtype: Any, length: int) -> Any:
        """(N T, D) of (N T, D)."""
        inputs = self.inputs(tf.cast(self.norm(values), dtype))
        features = self._width // self._num_heads
        heads = tf.reshape(inputs, (-1, length, 3, self._num_heads, features))
        queries, keys, heads = tf.unstack(tf.transpose(heads, (2, 0, 3, 1, 4)))
        scores = tf.matmul(queries * tf.cast(features**-0.5, dtype), keys, transpose_b=True)
        later = np.triu(np.full((length, length), MASKED, np.float32), k=1)
        shares = tf.nn.softmax(tf.cast(scores, tf.float32) + later)
        attended = tf.transpose(tf.matmul(tf.cast(shares, dtype), heads), (0, 2, 1, 3))
        return _to_residual(self.projection, tf.reshape(attended, (-1, self._width)))


class Mlp(tf.Module):  # type: ignore[misc]
    """Layer norm, and two dense layers with GELU between them."""

    def __init__(self, network: Variables, name: str, sizes: Network) -> None:
        super().__init__()
        self.norm = LayerNorm(network, f"{name}.norm", width=sizes.width)
        self.hidden = Dense(network, f"{name}.hidden", inputs=sizes.width, outputs=sizes.num_hidden)
        self.projection = Dense(network, f"{name}.projection", inputs=sizes.num_hidden, outputs=sizes.width)

    def __call__(self, values: Any, dtype: Any) -> Any:
        """(N T, D) of (N T, D)."""
        return _to_residual(self.projection, _gelu(self.hidden(tf.cast(self.norm(values), dtype))))


class Gpt(Variables):
    """The network up to its logits, (N, T, V)."""

    def __init__(self, sizes: Network) -> None:
        super().__init__()
        self.embedding = self.variable("embedding.weight", (sizes.width, sizes.vocabulary))
        self.positions = self.variable("positions.weight", (sizes.width, sizes.num_positions))
        self.blocks = [
            (Attention(self, f"blocks.{index}.attention", sizes), Mlp(self, f"blocks.{index}.mlp", sizes))
            for index in range(sizes.num_layers)
        ]
        self.norm = LayerNorm(self, "norm", width=sizes.width)
        self._sizes = sizes

    def __call__(self, tokens: Any) -> Any:
        """Logits (N, T, V) of tokens (N, T).

        Values that are added up stay in float32. The embedding's rows come from a transposed copy: their gradient is a
        whole tensor then, as every exchange wants it.
        """
        length, width, dtype = tokens.shape[1], self._sizes.width, self.dtype
        kernel = tf.convert_to_tensor(self.embedding)
        values = tf.gather(tf.transpose(kernel), tokens) + tf.transpose(self.positions)[:length]
        values = tf.reshape(values, (-1, width))
        for attention, mlp in self.blocks:
            values += attention(values, dtype, length)
            values += mlp(values, dtype)
        logits = tf.matmul(tf.cast(self.norm(values), dtype), tf.cast(kernel, dtype))
        return tf.reshape(logits, (-1, length, self._sizes.vocabulary))


def program(preset: Preset, *, gate: bool) -> TensorFlowProgram:
    """The network of a preset and its one objective."""
    sizes = NETWORKS[preset.name]
    network = Gpt(sizes)

    def forward(tokens: Any, labels: Any) -> Forward:
        """Mean softmax cross-entropy over all tokens."""
        logits = tf.reshape(network(tokens), (-1, sizes.vocabulary))
        return Forward(losses=[mean_cross_entropy(logits, tf.reshape(labels, (-1,)))], updates=[])

    return TensorFlowProgram(
        networks=[network],
        objectives=[objective(network, lambda: Adam(preset.learning_rate), gate=gate)],
        initial=partial(initial, sizes),
        forward=forward,
        outputs=lambda tokens, _labels: [network(tokens)],
        predict=network,
    )
