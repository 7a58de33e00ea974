"""Optimizers of the JAX networks: the updates of models/optimizers.py as functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from dlscale.models.optimizers import ADAM_EPSILON, BETAS, EPSILON, LAYERWISE, OptimizerRule
from dlscale.models.weights import decays

Slots = dict[str, list[Any]]


class Rule(NamedTuple):
    """An optimizer's rule; with `nesterov` its momentum looks one step ahead, as torch's."""

    rule: OptimizerRule
    nesterov: bool = False


def first_slots(rule: Rule, weights: Sequence[Any]) -> Slots:
    """What the optimizer keeps, before its first step."""

    def zeros() -> list[Any]:
        return [jnp.zeros_like(weight) for weight in weights]

    if rule.rule.name == "adam":
        return {"m": zeros(), "v": zeros(), "steps": [jnp.zeros((), jnp.float32)]}
    return {"momentum": zeros()} if rule.rule.momentum else {}


def update(
    rule: Rule,
    names: Sequence[str],
    weights: Sequence[Any],
    slots: Slots,
    gradients: Sequence[Any],
    rate: Any,
) -> tuple[list[Any], Slots]:
    """(weights, slots) after one step; all of it can be traced."""
    if rule.rule.name == "adam":
        return _adam(weights, slots, gradients, rate)
    momentum = rule.rule.momentum or 0.0
    changes = [
        _full(rule.rule, name, weight, gradient, rate)
        for name, weight, gradient in zip(names, weights, gradients, strict=True)
    ]
    if momentum:
        kept = [momentum * u + change for u, change in zip(slots["momentum"], changes, strict=True)]
        slots = {"momentum": kept}
        changes = (
            [change + momentum * u for change, u in zip(changes, kept, strict=True)]
            if rule.nesterov
            else kept
        )
    return [weight - rate * change for weight, change in zip(weights, changes, strict=True)], slots


def _adam(
    weights: Sequence[Any], slots: Slots, gradients: Sequence[Any], rate: Any
) -> tuple[list[Any], Slots]:
    beta1, beta2 = BETAS
    steps = slots["steps"][0] + 1
    m = [beta1 * m + (1 - beta1) * g for m, g in zip(slots["m"], gradients, strict=True)]
    v = [beta2 * v + (1 - beta2) * g * g for v, g in zip(slots["v"], gradients, strict=True)]
    bias1, root2 = 1 - beta1**steps, jnp.sqrt(1 - beta2**steps)
    after = [
        weight - rate / bias1 * first / (jnp.sqrt(second) / root2 + ADAM_EPSILON)
        for weight, first, second in zip(weights, m, v, strict=True)
    ]
    return after, {"m": m, "v": v, "steps": [steps]}


def _full(rule: OptimizerRule, name: str, weight: Any, gradient: Any, rate: Any) -> Any:
    """The gradient with weight decay, scaled where the rule works layer by layer."""
    decay = (rule.weight_decay or 0.0) if decays(name) else 0.0
    full = gradient + decay * weight if decay else gradient
    if rule.name not in LAYERWISE:
        return full
    weight_norm, norm = jnp.linalg.norm(weight.ravel()), jnp.linalg.norm(gradient.ravel())
    ratio = (rule.trust_coefficient or 0.0) * weight_norm / (norm + decay * weight_norm + EPSILON)
    if rule.name == "larc":
        ratio = jnp.minimum(ratio / rate, 1.0)
    return jnp.where((weight_norm > 0) & (norm > 0), ratio, 1.0) * full
