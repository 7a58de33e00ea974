"""How much longer than planned a rank's step takes, and the slowest of P ranks, which a synchronous step waits for.

A rank's step takes f times the mean step: resampled from measured steps, or lognormal with a coefficient of variation.
The largest of P draws is one draw: F(max) is uniform to the power of P, so the largest is the quantile at U^(1/P). The
same U makes more ranks wait longer: with the same generator for every number of ranks, a curve over them does not rise
by chance. Beyond the measured sample the tail goes on exponentially, with the mean excess of its largest twentieth,
rare long steps among them: the largest of 8,192 ranks is never in a sample of 200 steps, and a tail that ended with the
sample would be too good.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dlscale.analysis.predict.network import Limits, input_of
from dlscale.benchmarks.records.prediction import Origin

Floats = NDArray[np.float64]

MIN_SAMPLES = 20  # for a distribution of steps; fewer say nothing about a tail
TAIL_SHARE = 0.05


class Noise(NamedTuple):
    """The distribution of a rank's step. All sizes are relative to the mean step."""

    steps: tuple[float, ...] = ()  # measured steps over their mean; empty: lognormal
    variation: Limits = (0.0, 0.0)  # of the lognormal: lowest and highest coefficient that sources give


def noise_of_steps(step_seconds: tuple[float, ...], variation: Limits) -> Noise:
    """The noise of a rank's own steps where they are enough, else lognormal."""
    if len(step_seconds) < MIN_SAMPLES:
        return Noise(variation=variation)
    return Noise(steps=tuple((np.array(step_seconds) / np.mean(step_seconds)).tolist()))


def noise_origins(noise: Noise) -> Iterator[Origin]:
    """What of the noise was measured, and what was not."""
    if noise.steps:
        value = f"standard deviation {100 * float(np.std(noise.steps)):.1f} % of the mean"
        source = f"{len(noise.steps)} steps of the profile; a busy machine makes it too large"
        yield input_of("variation of steps", value, "measured", source)
    yield input_of("permanently slower ranks", "none", "not modelled", "the profile is of one rank")


@lru_cache(maxsize=32)  # backends of a curve share them
def slowest(noise: Noise, num_ranks: int, shape: tuple[int, int], seed: tuple[int, ...]) -> Floats:
    """(replicates, steps) factors of the slowest of `num_ranks`, of a generator with that seed; not to be changed."""
    rng = np.random.default_rng(seed)
    # The probability that a rank is slower than the one waited for; small numbers are kept, whose 1 - x would be 1.
    above = -np.expm1(np.log(rng.random(shape)) / num_ranks)
    if noise.steps:
        factors = _measured_quantile(np.array(noise.steps), above)
    else:
        low, high = noise.variation
        drawn = low * (high / low) ** rng.random((len(above), 1)) if 0 < low < high else high
        sigma = np.sqrt(np.log1p(np.square(drawn)))
        factors = np.exp(-sigma * ndtri(above) - sigma**2 / 2)
    factors.flags.writeable = False
    return factors


def _measured_quantile(steps: Floats, above: Floats) -> Floats:
    ordered, count = np.sort(steps), len(steps)
    in_tail = max(2, round(TAIL_SHARE * count))
    threshold = ordered[count - in_tail - 1]
    excess = float(np.mean(ordered[count - in_tail :] - threshold))
    body = np.interp(1 - above, (np.arange(count) + 0.5) / count, ordered)
    share = (in_tail + 0.5) / count
    tail = threshold + excess * np.log(share / np.maximum(above, 1e-300))
    return np.where(above < share, tail, body)
