"""How much longer than planned a rank's step takes, and the slowest of P ranks, which a synchronous step waits for.

A rank's step takes f times the mean step. f is resampled from measured steps, or lognormal with a coefficient of
variation. Four kinds of disturbance:

    steps      each rank draws anew in every step
    static     ranks differ for good: lognormal, one more factor
    rare       with a probability per rank and step something takes time: exponential, in mean steps
    messages   exponential per message; the engine's business (`loggp.ring_seconds`)

The largest of P draws is one draw: F(max) is uniform to the power of P, so the largest is the quantile at U^(1/P).
Beyond the measured sample the tail goes on exponentially, with the mean excess of its largest twentieth: the largest of
8,192 ranks is never in a sample of 200 steps, and a tail that ended with the sample would be too good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]

MIN_SAMPLES = 20  # for a distribution of steps; fewer say nothing about a tail
TAIL_SHARE = 0.05
STATIC_NODES = 32  # that stand for the lognormal of static differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The distribution of a rank's step. All sizes are relative to the mean step."""

    steps: tuple[float, ...] = ()  # measured steps over their mean; empty: lognormal
    variation: tuple[float, float] = (
        0.0,
        0.0,
    )  # of the lognormal: lowest and highest coefficient that sources give
    static: float = 0.0  # coefficient of variation over ranks
    rare_probability: float = 0.0  # per rank and step
    rare_size: float = 0.0  # mean

    def halved(self) -> Noise:
        """Half as much of everything."""
        return replace(
            self,
            steps=tuple(1 + (step - 1) / 2 for step in self.steps),
            variation=(self.variation[0] / 2, self.variation[1] / 2),
            static=self.static / 2,
            rare_size=self.rare_size / 2,
        )


def noise_of_steps(step_seconds: tuple[float, ...], variation: tuple[float, float]) -> Noise:
    """A profile's noise: its own steps where they are enough, else lognormal."""
    if len(step_seconds) < MIN_SAMPLES:
        return Noise(variation=variation)
    mean = sum(step_seconds) / len(step_seconds)
    return Noise(steps=tuple(step / mean for step in step_seconds))


def slowest(
    noise: Noise, num_ranks: int, shape: tuple[int, int], rng: np.random.Generator, *, num_dropped: int = 0
) -> Floats:
    """(replicates, steps) factors of the slowest of `num_ranks`, but for the `num_dropped` that are slower still."""
    above = _share_above(num_ranks, num_dropped, shape, rng)
    factors = _quantile(noise, above, rng)
    if noise.rare_probability and noise.rare_size:
        hit = rng.binomial(num_ranks, noise.rare_probability, shape)
        longest = -np.log1p(-(rng.random(shape) ** (1 / np.maximum(hit, 1)))) * noise.rare_size
        one = _quantile(noise, rng.random(shape), rng)
        factors = np.where(hit > num_dropped, np.maximum(factors, one + longest), factors)
    return factors


def _share_above(
    num_ranks: int, num_dropped: int, shape: tuple[int, int], rng: np.random.Generator
) -> Floats:
    """The probability that a rank is slower than the one waited for; kept small numbers, whose 1 - x would be 1."""
    if num_dropped:
        return rng.beta(num_dropped + 1, num_ranks - num_dropped, shape)
    return -np.expm1(np.log(rng.random(shape)) / num_ranks)


def _quantile(noise: Noise, above: Floats, rng: np.random.Generator) -> Floats:
    """The factors that a rank exceeds with these probabilities."""
    if noise.steps:
        return _measured_quantile(_with_static(np.array(noise.steps), noise.static), above)
    low, high = noise.variation
    drawn = np.full((len(above), 1), high)
    if 0 < low < high:
        drawn = low * (high / low) ** rng.random((len(above), 1))
    sigma = np.sqrt(np.log1p(drawn**2) + np.log1p(noise.static**2))
    return np.asarray(np.exp(-sigma * ndtri(above) - sigma**2 / 2), dtype=np.float64)


def _with_static(steps: Floats, static: float) -> Floats:
    if not static:
        return steps
    sigma = np.sqrt(np.log1p(static**2))
    middles = (np.arange(STATIC_NODES) + 0.5) / STATIC_NODES
    return np.outer(steps, np.exp(sigma * ndtri(middles) - sigma**2 / 2)).ravel()


def _measured_quantile(steps: Floats, above: Floats) -> Floats:
    ordered = np.sort(steps)
    count = len(ordered)
    in_tail = max(2, round(TAIL_SHARE * count))
    threshold = ordered[count - in_tail - 1]
    excess = float(np.mean(ordered[count - in_tail :] - threshold))
    body = np.interp(1 - above, (np.arange(count) + 0.5) / count, ordered)
    share = (in_tail + 0.5) / count
    tail = threshold + excess * np.log(share / np.maximum(above, 1e-300))
    return np.where(above < share, tail, body)
