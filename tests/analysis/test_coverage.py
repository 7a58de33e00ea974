"""Do 95 % intervals contain the truth in 95 % of simulated studies? The seed is fixed, so nothing is flaky."""

from collections.abc import Callable

import numpy as np
import pytest

from dlscale.analysis.statistics import half_width, ratio, t_interval

NUM_STUDIES = 2000  # the standard error of a coverage near 0.95 is then 0.5 %
TRUTH = 0.9
DRIFT = 0.2  # of the logarithm, common to all launches of a block

# Thousands of studies each: those of the usual size every day.
SIZES = [6, *(pytest.param(size, marks=pytest.mark.nightly) for size in (8, 10))]

Noise = Callable[[np.random.Generator, int], np.ndarray]

NOISES: dict[str, Noise] = {
    "normal": lambda generator, n: 0.01 * generator.standard_normal(n),
    "skewed": lambda generator, n: -0.02 * generator.lognormal(0, 1, n),
    "heavy-tailed": lambda generator, n: 0.01 * generator.standard_t(3, n),
    "outlying": lambda generator, n: 0.01 * generator.standard_normal(n) - 0.1 * (generator.random(n) < 0.1),
}


def simulate(num_blocks: int, over: Noise, under: Noise, *, paired: bool = True) -> tuple[float, float]:
    """Share of studies whose interval contains the truth, and the median width of the interval."""
    generator = np.random.default_rng(2015)
    hits, widths = 0, []
    for _ in range(NUM_STUDIES):
        drift = DRIFT * generator.standard_normal(num_blocks)
        numerator = np.exp(drift + over(generator, num_blocks)) * TRUTH
        denominator = np.exp(drift + under(generator, num_blocks))
        alone = [] if paired else [np.nan] * num_blocks
        found = ratio([*numerator, *alone], [*alone, *denominator])
        hits += found.low <= TRUTH <= found.high
        widths.append(found.high - found.low)
    return hits / NUM_STUDIES, float(np.median(widths))


@pytest.mark.parametrize("num_blocks", [3, *SIZES])
@pytest.mark.parametrize("noise", NOISES)
def test_the_paired_interval_holds_its_level(noise, num_blocks):
    coverage, _ = simulate(num_blocks, NOISES[noise], NOISES[noise])
    assert coverage >= 0.94


@pytest.mark.parametrize("num_blocks", SIZES)
def test_the_paired_interval_is_not_wider_than_it_must_be(num_blocks):
    coverage, _ = simulate(num_blocks, NOISES["normal"], NOISES["normal"])
    assert coverage <= 0.96


@pytest.mark.parametrize("num_blocks", SIZES)
def test_pairing_removes_the_drift(num_blocks):
    _, paired = simulate(num_blocks, NOISES["normal"], NOISES["normal"])
    _, unpaired = simulate(num_blocks, NOISES["normal"], NOISES["normal"], paired=False)
    assert unpaired > 10 * paired


@pytest.mark.parametrize("num_blocks", SIZES)
@pytest.mark.parametrize("share", [0.2, 0.33])
@pytest.mark.parametrize("slower", [0.1, 0.4])
def test_a_neighbour_that_slows_one_side_now_and_then_is_no_difference(num_blocks, share, slower):
    """By half to one and a half times as much from launch to launch; the truth is the ratio of typical launches."""

    def normal(generator: np.random.Generator, n: int) -> np.ndarray:
        return 0.005 * generator.standard_normal(n)

    def neighbour(generator: np.random.Generator, n: int) -> np.ndarray:
        amount = slower * generator.uniform(0.5, 1.5, n) * (generator.random(n) < share)
        return normal(generator, n) - amount

    many = np.random.default_rng(3)
    typical = float(np.median(neighbour(many, 400_000) - normal(many, 400_000)))
    coverage, _ = simulate(num_blocks, lambda *drawn: neighbour(*drawn) - typical, normal)
    assert coverage >= 0.94


@pytest.mark.parametrize("num_blocks", SIZES)
def test_for_normal_noise_it_is_a_t_interval_or_a_tenth_wider(num_blocks):
    logs = 0.01 * np.random.default_rng(4).standard_normal((NUM_STUDIES, num_blocks))
    found = [t_interval([one]) for one in logs]
    half = half_width(num_blocks) * logs.std(axis=1, ddof=1)
    assert 1 <= np.mean([one.high - one.low for one in found]) / np.mean(2 * half) <= 1.1


def test_what_skew_of_one_side_only_costs_is_known():
    """The one weakness that the docstring of ratio admits: 89 % instead of 95 %."""

    def exponential(generator: np.random.Generator, n: int) -> np.ndarray:
        return 0.03 * (1 - generator.exponential(1, n))

    def still(generator: np.random.Generator, n: int) -> np.ndarray:
        return np.zeros(n)

    coverage, _ = simulate(6, exponential, still)
    assert 0.88 <= coverage <= 0.91
