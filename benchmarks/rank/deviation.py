"""How far what a trainer did in some steps is from what a replay of them by a reference gives.

The *share* is the length of the deviation over that of the expected change, of the worst tensor: it sees a bucket, a
tensor or a step that is missing. The *scale* is the deviation's projection on the expected change, over all tensors of
a kind: rounding has another sign in every element and cancels in it, a mean that is too small does not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.weights import NUM_DRAWN, SLOTS, WEIGHT
from dlscale.models.workload import State, Weights

CENTRE = "centre"  # of ranks in rounds
VELOCITY = "velocity"  # likewise, where their algorithm has momentum
QUADRATIC = frozenset({"exp_avg_sq", "v"})  # second moments: rounding does not cancel in squares

# A float32 that was stored, and the few operations before: in units of its value.
LAST_PLACE = 2.0**-22

Snapshot = dict[str, NDArray[Any]]
"""What a step changes, by name: `weight.<place>`, and what optimizers keep as `state` names it.

Of ranks in rounds also `centre.<place>` and `velocity.<place>`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is allowed of a replayed step and of a replayed window, and which tensors are too small to be judged.

    `floor` is in units of the largest root mean square of a kind's tensors. A tensor whose largest mean gradient is
    below `noise` of the largest of all has rounding for a gradient (a bias before batch norm), which Adam blows up to
    a full step. `exact`: whether two replays of a step are equal bit by bit. A GPU's fastest algorithms add up in
    another order each time.
    """

    share: float
    scale: float
    window: float
    loss: float
    floor: float
    noise: float
    exact: bool = True


# Derived in docs/measurements/audits.md. Local gradients are computed by the same program twice and are mostly equal
# bit by bit.
EXACT = Bounds(share=1e-3, scale=1e-4, window=2e-2, loss=1e-3, floor=1e-3, noise=1e-5)
ROUNDED = Bounds(share=5e-2, scale=2e-3, window=1e-1, loss=5e-2, floor=1e-1, noise=1e-2)


def bounds_for(*, precision: str, compressed: bool = False, device: str = "cpu") -> Bounds:
    """The bounds of a computation and an exchange; `compressed`: other elements may pass a compressor's limit."""
    bounds = EXACT if precision == "fp32" and not compressed else ROUNDED
    return replace(bounds, exact=device == "cpu")


# Where replays are not exact: how many more there are of what is beyond its bound, how many times their largest
# difference from the first one is allowed then, and up to where it can tell anything: a mean that is halved, or a step
# of two that is missing, deviates by 0.5.
NUM_REPLAYS = 3
ALLOWED_NOISES = 4.0
MOST_NOISE = 0.1


@dataclass(slots=True)
class Judged:
    """The largest of some deviations, and the largest among replays of the same steps, where that was asked."""

    bound: float
    value: float = 0.0
    noise: float = 0.0

    def add(self, value: float) -> bool:
        self.value = max(self.value, value)
        return value > self.bound

    def add_noise(self, value: float) -> None:
        """Of a further replay; numbers that are not finite say nothing."""
        if math.isfinite(value):
            self.noise = max(self.noise, value)

    def allowed(self, noise: float) -> float:
        """The bound, or more where replays differ by `noise`."""
        return max(self.bound, ALLOWED_NOISES * noise)


def snapshot(
    weights: Weights, state: State, *, centre: Sequence[Any] = (), velocity: Sequence[Any] = ()
) -> Snapshot:
    """The weights and what the optimizers keep; batch norm's memory is no part of an update."""
    kinds = {WEIGHT: weights, CENTRE: centre, VELOCITY: velocity}
    return kept_by_optimizers(state) | {
        f"{kind}.{place}": value for kind, values in kinds.items() for place, value in enumerate(values)
    }


def kept_by_optimizers(state: State) -> State:
    """That part of a state."""
    return {name: value for name, value in state.items() if name.startswith(SLOTS)}


def changed(held: State) -> Snapshot:
    """What a step changes of what a trainer or a replica holds: all but the number of batches."""
    return {name: value for name, value in held.items() if name != NUM_DRAWN}


def noisy_weights(gradients: Weights, *, bounds: Bounds) -> set[str]:
    """Names of the weights whose mean gradients are rounding."""
    largest = [
        max(float(np.max(gradient, initial=0.0)), -float(np.min(gradient, initial=0.0)))  # without |gradient|
        for gradient in gradients
    ]
    limit = bounds.noise * max(largest, default=0.0)
    return {f"{WEIGHT}.{place}" for place, value in enumerate(largest) if value < limit}


@dataclass(frozen=True, slots=True)
class Deviation:
    """What one replay on one rank gave; infinite where a number is not finite."""

    share: float
    scale: float


def deviation(
    before: Snapshot, after: Snapshot, expected: Snapshot, *, bounds: Bounds, noisy: Collection[str] = ()
) -> Deviation:
    """The deviation of `after` from `expected`, of changes since `before`, without the tensors `noisy`."""
    kinds: dict[str, list[str]] = {}
    for name in sorted(set(expected) - set(noisy)):
        kinds.setdefault(_kind(name), []).append(name)
    if not set(expected) <= set(after):
        return Deviation(math.inf, math.inf)
    share = scale = 0.0
    for kind, names in kinds.items():
        if all(np.array_equal(after[name], expected[name]) for name in names):
            continue  # mostly, and then no sums are needed
        tensors = [_compare(before, after[name], expected, name) for name in names]
        largest = max(tensor.rms_change for tensor in tensors)
        share = max([share, *(tensor.share(bounds.floor * largest) for tensor in tensors)], key=nan_last)
        if kind not in QUADRATIC:
            scale = max(scale, _scale(tensors), key=nan_last)
    return Deviation(share, scale)


def whole_share(
    before: Snapshot, after: Snapshot, expected: Snapshot, *, noisy: Collection[str] = ()
) -> float:
    """The share of all weights together: in many steps rounding grows most where gradients are smallest."""
    names = [name for name in expected if _kind(name) in (WEIGHT, CENTRE) and name not in noisy]
    if all(np.array_equal(after[name], expected[name]) for name in names):
        return 0.0
    tensors = [_compare(before, after[name], expected, name) for name in names]
    error = math.sqrt(sum(tensor.error**2 for tensor in tensors))
    change = math.sqrt(sum(tensor.change**2 for tensor in tensors))
    return _ratio(max(0.0, error - math.sqrt(sum(t.rounding**2 for t in tensors)), key=nan_last), change)


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Lengths (L2) of a tensor's deviation, expected change and rounding; `along` is the product of the first two."""

    size: int
    error: float
    change: float
    along: float
    rounding: float

    @property
    def rms_change(self) -> float:
        return self.change / math.sqrt(self.size)

    def share(self, floor: float) -> float:
        beyond = max(0.0, self.error - self.rounding, key=nan_last)
        return _ratio(beyond / math.sqrt(self.size), max(self.rms_change, floor))


BLOCK = 1 << 15  # elements: what is converted stays in the cache


def _compare(
    before: Snapshot, after: NDArray[Any], expected: Mapping[str, NDArray[Any]], name: str
) -> _Tensor:
    new, wanted = after.reshape(-1), expected[name].reshape(-1)
    # What optimizers keep is made in their first step.
    old = before[name].reshape(-1) if name in before else np.zeros_like(wanted)
    errors = changes = along = squares = 0.0
    for begin in range(0, wanted.size, BLOCK):
        part = slice(begin, begin + BLOCK)
        value = wanted[part].astype(np.float64)
        error, change = new[part] - value, value - old[part]
        errors += float(np.dot(error, error))
        changes += float(np.dot(change, change))
        along += float(np.dot(error, change))
        squares += float(np.dot(value, value))
    return _Tensor(
        size=max(1, wanted.size),
        error=math.sqrt(errors),
        change=math.sqrt(changes),
        along=along,
        rounding=LAST_PLACE * math.sqrt(squares),
    )


def _scale(tensors: list[_Tensor]) -> float:
    squares = sum(tensor.change**2 for tensor in tensors)
    rounding = sum(tensor.rounding * tensor.change for tensor in tensors) / 4
    return _ratio(max(0.0, abs(sum(tensor.along for tensor in tensors)) - rounding, key=nan_last), squares)


def _ratio(part: float, whole: float) -> float:
    if not (math.isfinite(part) and math.isfinite(whole)):
        return math.inf
    if not part:
        return 0.0
    return part / whole if whole else math.inf


def nan_last(value: float) -> tuple[bool, float]:
    """NaN is the worst of deviations, which a plain maximum may pass over."""
    return math.isnan(value), value


def _kind(name: str) -> str:
    """`weight`, or what the optimizer calls a slot: optimizer0.3.exp_avg in torch, optimizer0.m.3 in TensorFlow."""
    first, *rest = name.split(".")
    return next((part for part in rest if not part.isdigit()), first)
