"""Do 95 % intervals of ratios and differences hold, on machines as they are, by 6, 8 and 10 launches?

The truth is the ratio of typical launches. Nominal minus 1 point is what is asked for, and at most 1.4 times the width
of the interval of somebody who knows the variance.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from dlscale.analysis.statistics import difference, ratio

from .conftest import MACHINES, studies

pytestmark = pytest.mark.slow
# Hundreds of studies each: those of the usual size every day.
LAUNCHES = [8, *(pytest.param(number, marks=pytest.mark.nightly) for number in (6, 10))]
KNOWN = 1.959964  # standard errors, for who knows them
TRUTH = 1.5
SLOWER, BASE = {"step_seconds": 0.045}, {"step_seconds": 0.03}


def check(over, under, *, paired=True):
    """(coverage, mean width over that of the known variance) of the ratio of these log times, [N, B]."""
    hits, width = 0, 0.0
    alone = [] if paired else [np.nan] * over.shape[1]
    for mine, theirs in zip(np.exp(over), np.exp(under), strict=True):
        found = ratio([*(TRUTH * mine), *alone], [*alone, *theirs])
        hits += found.low <= TRUTH <= found.high
        width += math.log(found.high / found.low)
    num_studies, num_blocks = over.shape
    error = math.sqrt((over - under).var() / num_blocks)
    if not paired:
        error = math.sqrt((over.var() + under.var()) / num_blocks)
    return hits / num_studies, width / num_studies / (2 * KNOWN * error)


@pytest.mark.parametrize("num_launches", LAUNCHES)
def test_a_paired_ratio(machine, num_launches):
    coverage, width = check(*studies(machine, num_launches, SLOWER, BASE))
    assert coverage >= 0.94
    assert width <= 1.4


@pytest.mark.parametrize("num_launches", LAUNCHES)
def test_a_paired_ratio_if_only_one_side_is_ever_held_up(machine, num_launches):
    coverage, width = check(*studies(machine, num_launches, SLOWER, {**BASE, "held_up": 0.0}))
    assert coverage >= 0.94
    assert width <= 1.4


@pytest.mark.parametrize("num_launches", LAUNCHES)
def test_an_unpaired_ratio_on_a_machine_that_does_not_drift(machine, num_launches):
    still = replace(machine, drift=0.0)
    coverage, width = check(*studies(still, num_launches, SLOWER, BASE), paired=False)
    assert coverage >= 0.94
    assert width <= 1.4


@pytest.mark.parametrize("num_launches", LAUNCHES)
def test_a_difference_of_two_backends(machine, num_launches):
    first, second, base = studies(
        machine, num_launches, {"step_seconds": 0.045}, {"step_seconds": 0.042}, BASE
    )
    hits = 0
    for one, other, alone in zip(1.5 * np.exp(first), 1.4 * np.exp(second), np.exp(base), strict=True):
        found = difference(one, other, alone)
        hits += found.low <= 0.1 <= found.high
    assert hits / len(first) >= 0.94


def test_what_the_interval_is_of():
    """The ratio of typical launches, and not of the mean launches where one side alone is held up now and then."""
    machine = MACHINES["outlying launches"]
    over, under = studies(machine, 8, SLOWER, {**BASE, "held_up": 0.0})
    assert check(over, under)[0] >= 0.94
    assert check(over - machine.held_up * machine.by, under)[0] <= 0.7
