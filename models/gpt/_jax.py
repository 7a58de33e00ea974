"""GPT in JAX. Axis letters: N samples, T tokens, D features, V vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dlscale.models.frameworks._jax import JaxProgram, Shapes
from dlscale.models.frameworks._jax_layers import dense, mean_cross_entropy
from dlscale.models.frameworks._jax_optimizers import Rule
from dlscale.models.gpt import EPSILON, NETWORKS, Network, initial
from dlscale.models.optimizers import OptimizerRule
from dlscale.models.workload import Preset


def shapes(network: Network) -> Shapes:
    """Names and shapes of the weights, in torch's order."""
    width, hidden = network.width, network.num_hidden

    def layer(name: str, *kernel: int) -> Shapes:
        return [(f"{name}.weight", kernel), (f"{name}.bias", kernel[-1:])]

    found: list[tuple[str, tuple[int, ...]]] = [
        ("embedding.weight", (width, network.vocabulary)),
        ("positions.weight", (width, network.num_positions)),
    ]
    for index in range(network.num_layers):
        block = f"blocks.{index}"
        found += [
            *layer(f"{block}.attention.norm", width),
            *layer(f"{block}.attention.inputs", width, 3 * width),
            *layer(f"{block}.attention.projection", width, width),
            *layer(f"{block}.mlp.norm", width),
            *layer(f"{block}.mlp.hidden", width, hidden),
            *layer(f"{block}.mlp.projection", hidden, width),
        ]
    return [*found, *layer("norm", width)]


def logits(network: Network, weights: Mapping[str, Any], tokens: Any) -> Any:
    """Logits (N, T, V) of tokens (N, T)."""
    kernel, length = weights["embedding.weight"], tokens.shape[1]
    values = kernel.T[tokens] + weights["positions.weight"].T[:length]
    for index in range(network.num_layers):
        block = f"blocks.{index}"
        values = values + _attention(network, weights, f"{block}.attention", values)
        values = values + _mlp(weights, f"{block}.mlp", values)
    return _norm(weights, "norm", values) @ kernel


def _attention(network: Network, weights: Mapping[str, Any], name: str, values: Any) -> Any:
    inputs = dense(weights, f"{name}.inputs", _norm(weights, f"{name}.norm", values))
    heads = inputs.reshape(*values.shape[:2], 3, network.num_heads, -1)
    queries, keys, heads = (heads[:, :, place] for place in range(3))
    attended = jax.nn.dot_product_attention(queries, keys, heads, is_causal=True)
    return dense(weights, f"{name}.projection", attended.reshape(values.shape))


def _mlp(weights: Mapping[str, Any], name: str, values: Any) -> Any:
    hidden = dense(weights, f"{name}.hidden", _norm(weights, f"{name}.norm", values))
    return dense(weights, f"{name}.projection", jax.nn.gelu(hidden, approximate=True))


def _norm(weights: Mapping[str, Any], name: str, values: Any) -> Any:
    centered = values - jnp.mean(values, axis=-1, keepdims=True)
    scaled = centered * lax.rsqrt(jnp.mean(centered * centered, axis=-1, keepdims=True) + EPSILON)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def program(preset: Preset, *, gate: bool) -> JaxProgram:  # noqa: ARG001
    """The network of a preset and its loss: mean cross-entropy over all tokens."""
    network = NETWORKS[preset.name]

    def loss(weights: Any, remembered: Any, tokens: Any, labels: Any) -> tuple[Any, Any]:
        flat = logits(network, weights, tokens).reshape(-1, network.vocabulary)
        return mean_cross_entropy(flat, labels.reshape(-1)), remembered

    return JaxProgram(
        shapes=shapes(network),
        remembered={},
        rule=Rule(OptimizerRule(name="adam")),
        initial=partial(initial, network),
        loss=loss,
        outputs=lambda weights, _remembered, tokens, _labels: logits(network, weights, tokens),
        predict=lambda weights, _remembered, tokens: logits(network, weights, tokens),
    )
