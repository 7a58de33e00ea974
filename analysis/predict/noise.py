"""How much longer than planned a rank's step takes, and the slowest of P ranks, which a synchronous step waits for.

A rank's step takes f times the mean step. f is resampled from measured steps, or lognormal with a coefficient of
variation. Three kinds of disturbance:

    steps      each rank draws anew in every step
    static     ranks differ for good: lognormal, one more factor
    rare       with a probability per rank and step something takes time: a least, and exponential beyond, in mean steps

The largest of P draws is one draw: F(max) is uniform to the power of P, so the largest is the quantile at U^(1/P). The
same U makes more ranks wait longer: with the same generator for every number of ranks, a curve over them does not rise
by chance.
Beyond the measured sample the tail goes on exponentially, with the mean excess of its largest twentieth: the largest of
8,192 ranks is never in a sample of 200 steps, and a tail that ended with the sample would be too good.

Rare events are found among the measured steps. An exponential tail through the 75 % and the 95 % quantile, whose decay
is (q95 - q75) / log 5, would have one step in a hundred profiles of n steps beyond the fence

    q95 + decay log(0.05 n / 0.01)

A step beyond it whose neighbours are not is a rare event. The length of events begins where the shortest of them
says, and their excess over that is exponential. Neighbours beyond the fence are one disturbance over several steps,
which draws of single steps cannot have: they stay among the resampled steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from dlscale.analysis.predict.network import Limits
from dlscale.analysis.predict.profile import Profile
from dlscale.benchmarks.records.prediction import Origin

Floats = NDArray[np.float64]

MIN_SAMPLES = 20  # for a distribution of steps; fewer say nothing about a tail
TAIL_SHARE = 0.05
STATIC_NODES = 32  # that stand for the lognormal of static differences
FALSE_PROFILES = 0.01  # that have a step beyond the fence though nothing happened
MIN_EVENTS = 3  # fewer have no mean length


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The distribution of a rank's step. All sizes are relative to the mean step."""

    steps: tuple[float, ...] = ()  # measured steps over their mean; empty: lognormal
    variation: Limits = (0.0, 0.0)  # of the lognormal: lowest and highest coefficient that sources give
    static: float = 0.0  # coefficient of variation over ranks
    rare_probability: float = 0.0  # per rank and step
    rare_least: float = 0.0
    rare_size: float = 0.0  # mean beyond the least

    def scaled(self, factor: float) -> Noise:
        """This factor times as much of everything."""
        return replace(
            self,
            steps=tuple(1 + (step - 1) * factor for step in self.steps),
            variation=(self.variation[0] * factor, self.variation[1] * factor),
            static=self.static * factor,
            rare_least=self.rare_least * factor,
            rare_size=self.rare_size * factor,
        )


def noise_of(profile: Profile) -> Noise:
    """A profile's noise."""
    noise = noise_of_steps(profile.step_seconds, profile.variation)
    return replace(noise, static=profile.rank_variation or 0.0)


def noise_origins(profile: Profile, noise: Noise) -> Iterator[Origin]:
    """What of the noise was measured, and what was not."""
    count = len(profile.step_seconds)
    if noise.steps:
        value = f"standard deviation {100 * float(np.std(noise.steps)):.1f} % of the mean"
        source = f"{count} steps of the profile; a busy machine makes it too large"
        yield Origin(input="variation of steps", value=value, kind="measured", source=source)
        num_events = int(rare_events(np.array(profile.step_seconds)).sum())
        # With 3 / n per step, none of n steps is one in 5 % of all profiles.
        value = f"at most {300 / count:.2g} % of steps"
        if noise.rare_probability:
            longer = 100 * (noise.rare_least + noise.rare_size)
            value = f"{num_events} of {count} steps, which take {longer:.0f} % of a mean step longer"
        elif num_events:
            value = f"{num_events} of {count} steps, too few for their length: as other steps"
        yield Origin(
            input="rare events", value=value, kind="measured", source=f"{count} steps of the profile"
        )
    else:
        source = "the profile has no single steps"
        yield Origin(input="rare events", value="none", kind="not modelled", source=source)
    static = profile.rank_variation
    yield Origin(
        input="permanently slower ranks",
        value="none" if static is None else f"by {100 * static:.2g} %",
        kind="not modelled" if static is None else "measured",
        source=profile.rank_variation_source,
    )


def noise_of_steps(step_seconds: tuple[float, ...], variation: Limits) -> Noise:
    """The noise of a rank's own steps, in their order, where they are enough; else lognormal."""
    if len(step_seconds) < MIN_SAMPLES:
        return Noise(variation=variation)
    steps = np.array(step_seconds) / np.mean(step_seconds)
    events = rare_events(steps)
    count = int(events.sum())
    if count < MIN_EVENTS:
        return Noise(steps=tuple(steps.tolist()))
    usual = steps[~events]
    longer = steps[events] - usual.mean()
    # Unbiased for exponentials beyond a least length: the shortest of k is 1/k of their mean above it.
    least = max(0.0, float(longer.min() - (longer.mean() - longer.min()) / (count - 1)))
    return Noise(
        steps=tuple(usual.tolist()),
        rare_probability=count / len(steps),
        rare_least=least,
        rare_size=float(longer.mean()) - least,
    )


def rare_events(steps: Floats) -> NDArray[np.bool_]:
    """Which of these steps, in their order, are rare events."""
    upper, high = np.quantile(steps, (0.75, 1 - TAIL_SHARE))
    decay = (high - upper) / math.log(0.25 / TAIL_SHARE)
    beyond = steps > high + decay * math.log(TAIL_SHARE * len(steps) / FALSE_PROFILES)
    beside = np.append(beyond[1:], False) | np.append(False, beyond[:-1])
    return np.asarray(beyond & ~beside, dtype=np.bool_)


@lru_cache(maxsize=32)  # backends of a curve share them
def slowest(
    noise: Noise, num_ranks: int, shape: tuple[int, int], seed: tuple[int, ...], *, num_dropped: int = 0
) -> Floats:
    """(replicates, steps) factors of the slowest of `num_ranks`, but for the `num_dropped` that are slower still.

    Of a generator with that seed; not to be changed.
    """
    rng = np.random.default_rng(seed)
    factors = _quantile(noise, _share_above(num_ranks, num_dropped, shape, rng), rng)
    if noise.rare_probability and noise.rare_least + noise.rare_size:
        hit = _share_above(num_ranks, num_dropped, shape, rng)
        beyond = noise.rare_size * np.log(noise.rare_probability / hit)
        longest = _quantile(noise, rng.random(shape), rng) + noise.rare_least + beyond
        factors = np.where(hit < noise.rare_probability, np.maximum(factors, longest), factors)
    factors.flags.writeable = False
    return factors


def _share_above(
    num_ranks: int, num_dropped: int, shape: tuple[int, int], rng: np.random.Generator
) -> Floats:
    """The probability that a rank is slower than the one waited for; kept small numbers, whose 1 - x would be 1."""
    uniform = rng.random(shape)
    if num_dropped:
        return np.asarray(betaincinv(num_dropped + 1, num_ranks - num_dropped, 1 - uniform))
    return -np.expm1(np.log(uniform) / num_ranks)


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
