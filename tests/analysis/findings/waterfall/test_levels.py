"""Do 95 % intervals of parts contain the truth in 95 % of simulated studies? Seeds are fixed: nothing is flaky."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dlscale.analysis.findings.waterfall_levels import Levels, difference
from dlscale.analysis.findings.waterfall_parts import HALOS, NAMES, staircase
from dlscale.analysis.statistics import block_difference, block_ratio

NUM_STUDIES = (
    2000  # the standard error of a coverage near 0.95 is then 0.5 %, and the least of five is looked at
)
DRIFT = 0.2  # of the logarithm, common to all launches of a block
TRUTH = {  # milliseconds of a step
    "ideal": 8.0,
    "ideal_resident": 7.0,
    "alone": 8.5,
    "alone_resident": 7.4,
    "thin": 8.8,
    "thin_resident": 7.6,
    "resident": 7.9,
    "mean": 9.6,
    "latest": 10.1,
    "gathered": 10.6,
    "measured": 11.0,
}
PARTS = (0.4, 0.2, 0.3, 0.7, 0.5, 0.5, 0.4)

Noise = Callable[[np.random.Generator, int], np.ndarray]
NOISES: dict[str, Noise] = {
    "normal": lambda generator, n: 0.01 * generator.standard_normal(n),
    "skewed": lambda generator, n: 0.02 * generator.lognormal(0, 1, n),
    "heavy-tailed": lambda generator, n: 0.01 * generator.standard_t(3, n),
    "outlying": lambda generator, n: 0.01 * generator.standard_normal(n) + 0.1 * (generator.random(n) < 0.1),
}
positive = st.floats(0.1, 10)
STAIRS = staircase(TRUTH.keys(), smaller=True, thin=True, reads=True, together=True)


def simulate(generator: np.random.Generator, noise: Noise, num_blocks: int, *, paired: bool) -> Levels:
    """Train and synthetic run in one launch, so that they share their noise but for a tenth."""
    drift, far_drift = DRIFT * generator.standard_normal((2, num_blocks))
    levels = {}
    launches: dict[str, np.ndarray] = {}
    for name, seconds in TRUTH.items():
        launch = {"latest": "mean", "resident": "mean", "gathered": "measured"}.get(
            name, name.removesuffix("_resident")
        )
        shared = launches.setdefault(launch, noise(generator, num_blocks))
        own = 0.1 * noise(generator, num_blocks)
        block = drift if paired or not name.startswith("ideal") else far_drift
        levels[name] = seconds * np.exp(block + shared + own)
    far = {} if paired else {name: levels.pop(name) for name in ("ideal", "ideal_resident")}
    return Levels(near=levels, far=far)


def coverage(noise: str, num_blocks: int, *, paired: bool = True) -> list[float]:
    """Of each part."""
    generator = np.random.default_rng(2015)
    hits = np.zeros(len(STAIRS))
    for _ in range(NUM_STUDIES):
        levels = simulate(generator, NOISES[noise], num_blocks, paired=paired)
        found = [levels.share(stair.terms) for stair in STAIRS]
        truths = [part / TRUTH["measured"] for part in PARTS]
        hits += [one.low <= truth <= one.high for one, truth in zip(found, truths, strict=True)]
    return list(hits / NUM_STUDIES)


# Thousands of studies each: those of the usual size every day.
SIZES = [6, *(pytest.param(size, marks=pytest.mark.nightly) for size in (3, 10))]


@pytest.mark.slow
@pytest.mark.parametrize("num_blocks", SIZES)
@pytest.mark.parametrize("noise", NOISES)
def test_the_interval_of_a_part_holds_its_level(noise, num_blocks):
    assert min(coverage(noise, num_blocks)) >= 0.935


@pytest.mark.parametrize("num_blocks", SIZES)
def test_so_does_that_of_an_unpaired_one(num_blocks):
    assert min(coverage("normal", num_blocks, paired=False)) >= 0.935


def test_the_parts_of_the_truth_are_those_that_were_planted():
    assert [stair.name for stair in STAIRS] == [name for name in NAMES if name != HALOS]
    levels = Levels(near={name: np.full(3, seconds) for name, seconds in TRUTH.items()}, far={})
    assert [levels.share(stair.terms).center * 11 for stair in STAIRS] == pytest.approx(PARTS)


@given(st.lists(st.tuples(positive, positive, positive), min_size=3, max_size=10))
def test_a_difference_of_two_levels_is_that_of_two_backends(blocks):
    first, second, measured = (dict(enumerate(column)) for column in zip(*blocks, strict=True))
    arrays = [np.array(list(one.values())) for one in (first, second, measured)]
    levels = Levels(near=dict(zip(("mean", "ideal", "measured"), arrays, strict=True)), far={})
    found = levels.share({"mean": 1, "ideal": -1})
    expected = block_difference(first, second, measured)
    assert (found.method, found.n) == (expected.method, expected.n)
    for name in ("center", "low", "high"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-9)


@given(st.lists(positive, min_size=3, max_size=8), st.lists(positive, min_size=3, max_size=8))
def test_unpaired_it_agrees_with_the_ratio_to_first_order(ideal, measured):
    ideal, measured = (1 + 0.001 * np.array(one) for one in (ideal, measured))
    levels = Levels(near={"measured": measured}, far={"ideal": ideal})
    found = levels.share(difference({"measured": 1}, {"ideal": 1}))
    expected = block_ratio(
        {f"far {index}": value for index, value in enumerate(ideal)}, dict(enumerate(measured))
    ).complement()
    assert found.method == expected.method
    for name in ("center", "low", "high"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=2e-4)


def test_far_levels_have_noise_of_their_own_and_near_ones_that_beside_the_measured_step():
    """2 far levels and 2 near ones with logarithms that are easy to add up."""

    # Of a measured step of 8 the levels are 1/2, 1/4, 1/4 and 1/8 by geometric means; the logarithms add up to
    # ideal / 2 + ideal_resident / 4, and to alone / 4 - mean / 8 - (1/2 + 1/4 + 1/4 - 1/8) measured.
    def level(center, logs):
        return center * np.exp(np.array(logs, float))

    levels = Levels(
        near={
            "measured": level(8, [0.8, -0.8, 0.8, -0.8]),
            "alone": level(2, [0.4, -0.4, -0.4, 0.4]),
            "mean": level(1, [0.8, -0.8, -0.8, 0.8]),
        },
        far={"ideal": level(4, [0.2, 0, -0.2]), "ideal_resident": level(2, [0, 0.8, -0.8])},
    )
    share = levels.share({"ideal": 1, "ideal_resident": 1, "alone": 1, "mean": -1})
    near, far = np.array([-0.7, 0.7, -0.7, 0.7]), np.array([0.1, 0.2, -0.3])
    variances = near.var(ddof=1) / 4, far.var(ddof=1) / 3
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 3 + variances[1] ** 2 / 2)
    assert share.center == pytest.approx(0.875)
    assert share.high - share.center == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(sum(variances)))
    assert (share.method, share.n, share.level) == ("unpaired t", 3, 0.95)


def test_a_chained_share_has_the_noise_of_each_link():
    """The base case of another job, which has the training "link" of this one, and a third job between them."""
    link, step = np.array([0.3, -0.1, -0.2]), np.array([0.4, 0.1, -0.2, -0.3])
    ideal = np.array([0.1, -0.1, 0.2, -0.2, 0.0])
    levels = Levels(
        near={"measured": np.full(3, 8.0), "link": 2 * np.exp(link)},
        far={"ideal": 3 * np.exp(ideal)},  # relative to the link there
        between=(step,),
    )
    share = levels.share({"measured": 1, "ideal": -1})
    variances = [0.75**2 * logs.var(ddof=1) / len(logs) for logs in (link, step, ideal)]
    freedom = sum(variances) ** 2 / sum(one**2 / n for one, n in zip(variances, (2, 3, 4), strict=True))
    assert share.center == pytest.approx(0.25)
    assert share.high - share.center == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(sum(variances)))
    assert (share.method, share.n) == ("chained t", 3)
