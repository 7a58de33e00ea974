"""How far what a trainer did in some steps is from what a replay of them by a reference gives.

The *share* is the length of the deviation over that of the expected change, of the worst tensor: it sees a bucket, a
tensor or a step that is missing. The *scale* is the deviation's projection on the expected change, over all tensors of
a kind: rounding has another sign in every element and cancels in it, a mean that is too small does not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.workload import SLOTS, WEIGHT, State, Weights

CENTRE = "centre"  # of elastic averaging
QUADRATIC = frozenset({"exp_avg_sq", "v"})  # second moments: rounding does not cancel in squares
LAST_PLACE = 2.0**-22  # of a float32's value: it was stored, after a few operations

Snapshot = dict[str, NDArray[Any]]
"""What a step changes, by name: `weight.<place>`, and what optimizers keep as `state` names it.

Of elastic averaging also `centre.<place>`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The largest deviations of a replayed step and window, and which tensors are too small to be judged.

    `floor` is in units of the largest root mean square of a kind's tensors. A tensor whose largest mean gradient is
    below `noise` of the largest of all has rounding for a gradient (a bias before batch norm), which Adam blows up to
    a full step. `exact`: two replays of a step are equal bit by bit. `outputs`: the difference of a network's outputs
    for the same samples.
    """

    share: float
    scale: float
    window: float
    outputs: float
    floor: float
    noise: float
    exact: bool = True


# Derived in docs/measurements/audits.md. Local gradients are computed by the same program twice and are mostly equal
# bit by bit.
EXACT = Bounds(share=1e-3, scale=1e-4, window=2e-2, outputs=1e-3, floor=1e-3, noise=1e-5)
ROUNDED = Bounds(share=5e-2, scale=2e-3, window=1e-1, outputs=5e-2, floor=1e-1, noise=1e-2)


def bounds_for(*, precision: str, compressed: bool = False, device: str = "cpu") -> Bounds:
    """The bounds of a computation and an exchange.

    `compressed`: other elements may pass a compressor's limit. A GPU's fastest algorithms add up in another order each
    time.
    """
    exact = device == "cpu"
    return replace(EXACT if precision == "fp32" and exact and not compressed else ROUNDED, exact=exact)


def snapshot(weights: Sequence[Any], state: State, *, centre: Sequence[Any] = ()) -> Snapshot:
    """Weights in order, and what optimizers keep in `state`."""
    named = {WEIGHT: weights, CENTRE: centre}
    arrays = {f"{kind}.{place}": array for kind, own in named.items() for place, array in enumerate(own)}
    return arrays | {name: value for name, value in state.items() if name.startswith(SLOTS)}


def noisy_weights(gradients: Weights, *, bounds: Bounds) -> set[str]:
    """Names of the weights whose mean gradients are rounding."""
    # Without |gradient|, which would be another array.
    largest = [max(float(np.max(g, initial=0.0)), -float(np.min(g, initial=0.0))) for g in gradients]
    limit = bounds.noise * max(largest, default=0.0)
    return {f"{WEIGHT}.{place}" for place, value in enumerate(largest) if value < limit}


def deviation(
    before: Snapshot, after: Snapshot, expected: Snapshot, *, bounds: Bounds, noisy: Collection[str] = ()
) -> tuple[float, float]:
    """Share and scale of `after` against `expected`, of changes since `before`, without the tensors `noisy`.

    Infinite where a number is not finite.
    """
    if not set(expected) <= set(after):
        return math.inf, math.inf
    share = scale = 0.0
    kinds: dict[str, list[str]] = {}
    for name in sorted(set(expected) - set(noisy)):
        kinds.setdefault(_kind(name), []).append(name)
    for kind, names in kinds.items():
        if all(np.array_equal(after[name], expected[name]) for name in names):
            continue  # mostly, and then no sums are needed
        size, error, change, along, rounding = _lengths(before, after, expected, names)
        rms = change / np.sqrt(size)
        beyond = (error - rounding) / np.sqrt(size)
        share = max(share, _ratio(beyond, np.maximum(rms, bounds.floor * rms.max())))
        if kind not in QUADRATIC:
            projected = abs(along.sum()) - np.sum(rounding * change) / 4
            scale = max(scale, _ratio(projected, np.sum(change**2)))
    return share, scale


def whole_share(
    before: Snapshot, after: Snapshot, expected: Snapshot, *, noisy: Collection[str] = ()
) -> float:
    """The share of all weights together: in many steps rounding grows most where gradients are smallest."""
    names = [name for name in expected if _kind(name) in (WEIGHT, CENTRE) and name not in noisy]
    if all(np.array_equal(after[name], expected[name]) for name in names):
        return 0.0
    _, error, change, _, rounding = _lengths(before, after, expected, names)
    return _ratio(np.linalg.norm(error) - np.linalg.norm(rounding), np.linalg.norm(change))


def _lengths(
    before: Snapshot, after: Snapshot, expected: Snapshot, names: Sequence[str]
) -> tuple[NDArray[np.float64], ...]:
    """For each tensor its size; lengths (L2) of error and change; their product; and the length of its rounding."""
    rows = []
    for name in names:
        value: Any = expected[name].astype(np.float64).reshape(-1)
        error = after[name].reshape(-1) - value
        # What optimizers keep is made in their first step.
        change = value - before[name].reshape(-1) if name in before else value
        rows.append((max(1, value.size), error @ error, change @ change, error @ change, value @ value))
    found = np.array(rows).T
    size, error, change, along, values = found if np.isfinite(found).all() else found * math.nan
    return size, np.sqrt(error), np.sqrt(change), along, LAST_PLACE * np.sqrt(values)


def _ratio(part: Any, whole: Any) -> float:
    """The largest; zero where the part is not positive, infinite where a number is not finite or the whole is zero."""
    parts, wholes = np.atleast_1d(part, whole)
    if not (np.isfinite(parts).all() and np.isfinite(wholes).all()):
        return math.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(parts > 0, parts / wholes, 0.0), initial=0.0))


def _kind(name: str) -> str:
    """`weight`, or what the optimizer calls a slot: optimizer0.3.exp_avg in torch, optimizer0.m.3 in TensorFlow."""
    first, *rest = name.split(".")
    return next((part for part in rest if not part.isdigit()), first)


def largest_difference(found: Any, expected: Any) -> float:
    """Of two arrays, of the largest expected value; infinite where a number is not finite, or shapes differ."""
    if np.shape(found) != np.shape(expected):
        return math.inf
    if np.array_equal(found, expected):
        return 0.0
    one, other = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    error = float(np.max(np.abs(one - other)) / (np.max(np.abs(other)) or 1.0))
    return error if math.isfinite(error) else math.inf
