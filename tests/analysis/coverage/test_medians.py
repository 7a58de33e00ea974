"""Does a rate's interval hold, for the median of what the machine did while the study ran?

Of a machine that drifts nobody knows a rate that holds for ever: its launches are drawn from what each block was like,
and the truth is the median of all of that, half the launches above and half below. Blocks that differ make order
statistics cover more and not less (Hoeffding 1956), because half of them are below for sure.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from dlscale.analysis.statistics import LEVEL, median_interval

from .conftest import MACHINES, drifting, studies

pytestmark = pytest.mark.slow
# Hundreds of studies each: those of the usual size every day.
LAUNCHES = [8, *(pytest.param(number, marks=pytest.mark.nightly) for number in (6, 10))]


def intervals(values):
    """(low, high) of each study, [N]."""
    found = [median_interval(one) for one in values]
    return np.array([one.low for one in found]), np.array([one.high for one in found])


def true_medians(drift, machine):
    """Of the mixture over the blocks of each study, [N], where a launch's own noise is normal."""
    low, high = drift.min(axis=1) - 1, drift.max(axis=1) + 1
    for _ in range(60):
        middle = (low + high) / 2
        away = middle[:, None] - drift
        below = (1 - machine.held_up) * ndtr(away / machine.launch_spread)
        below += machine.held_up * ndtr((away - machine.by) / machine.launch_spread)
        is_above = below.mean(axis=1) > 0.5
        low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
    return middle


@pytest.mark.parametrize("drift", [0.0, 0.002, 0.01, 0.05])
@pytest.mark.parametrize("name", ["quiet", "outlying launches"])
@pytest.mark.parametrize("num_launches", LAUNCHES)
def test_the_median_of_a_machine_that_drifts(num_launches, name, drift):
    launches, blocks, machine = drifting(name, num_launches, drift)
    low, high = intervals(launches)
    truth = true_medians(blocks, machine)
    coverage = np.mean((low <= truth) & (truth <= high))
    assert coverage >= LEVEL - 0.01


@pytest.mark.parametrize("num_launches", LAUNCHES)
def test_the_median_of_launches_as_they_are(machine, num_launches):
    """Autocorrelated, skewed windows, as many as the budget lets be; the truth from very many such launches."""
    (launches,) = studies(replace(machine, drift=0.0), num_launches, {})
    low, high = intervals(launches)
    truth = np.median(launches)
    assert np.mean((low <= truth) & (truth <= high)) >= LEVEL - 0.01


@pytest.mark.parametrize("num_launches", LAUNCHES)
def test_the_width_beside_that_of_who_knows_the_variance(num_launches):
    """Of the same median: the limits of whole pairs of 8 launches would be 1.8 times as wide."""
    (launches,) = studies(replace(MACHINES["autocorrelated windows"], drift=0.0), num_launches, {})
    low, high = intervals(launches)
    known = 2 * float(ndtri((1 + LEVEL) / 2)) * np.median(launches, axis=1).std()
    assert np.mean(high - low) <= 1.4 * known


DRAWS = {
    "normal": (lambda generator, shape: generator.standard_normal(shape), 0.0),
    "exponential": (lambda generator, shape: generator.exponential(1, shape), math.log(2)),
    "lognormal": (lambda generator, shape: generator.lognormal(0, 1, shape), 1.0),
    "heavy-tailed": (lambda generator, shape: generator.standard_t(3, shape), 0.0),
    "uniform": (lambda generator, shape: generator.random(shape), 0.5),
    "outlying": (lambda g, shape: g.standard_normal(shape) + 10 * (g.random(shape) < 0.1), 0.1397),
}


@pytest.mark.parametrize("num_launches", [6, 7, 8, 9, 10, 12, 20])
@pytest.mark.parametrize("noise", DRAWS)
def test_the_level_holds_for_many_distributions(num_launches, noise):
    draw, truth = DRAWS[noise]
    low, high = intervals(draw(np.random.default_rng(1986), (4000, num_launches)))
    assert np.mean((low <= truth) & (truth <= high)) >= 0.945  # 95 %, and what so many draws leave open


def test_what_two_kinds_of_launches_cost_is_known():
    """The weakness that the docstring admits: four launches fast, four slow, nothing between."""
    generator = np.random.default_rng(1986)
    kinds = 0.1 * generator.standard_normal((4000, 8)) + 2 * (generator.random((4000, 8)) < 0.5) - 1
    low, high = intervals(kinds)
    assert 0.92 <= np.mean((low <= 0) & (high >= 0)) <= 0.94


def test_blocks_that_differ_make_it_cover_more():
    launches, blocks, machine = drifting("quiet", 10, 0.05)
    low, high = intervals(launches)
    truth = true_medians(blocks, machine)
    assert np.mean((low <= truth) & (truth <= high)) > 0.99
    assert math.isclose(np.mean(blocks.std(axis=1) > machine.launch_spread), 1.0, abs_tol=0.01)
