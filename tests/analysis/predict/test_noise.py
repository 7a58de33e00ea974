"""Noise that was planted into steps, ranks and calls is found again, and what cannot be known says so."""

import numpy as np
import pytest

from dlscale.analysis.predict.noise import Noise, noise_of_steps, slowest
from dlscale.analysis.predict.scenario import origins_of
from tests.analysis.made_scenarios import scenario


def test_what_was_not_measured_is_said_and_is_no_zero():
    missing = [it.input for it in origins_of(scenario()) if it.kind == "not modelled"]
    assert missing == ["permanently slower ranks", "jitter of messages"]


@pytest.mark.parametrize("num_ranks", [1, 16, 512])
def test_the_slowest_of_many_lognormal_ranks_is_that_of_many_draws(num_ranks):
    noise = Noise(variation=(0.05, 0.05))
    rng = np.random.default_rng(5)
    drawn = np.exp(rng.normal(-(0.05**2) / 2, 0.05, (4000, num_ranks))).max(axis=1)
    mean = slowest(noise, num_ranks, (400, 50), (5,)).mean()
    assert mean == pytest.approx(drawn.mean(), rel=0.005)


def test_measured_steps_are_resampled_and_their_tail_goes_on():
    rng = np.random.default_rng(7)
    steps = 1 + rng.exponential(0.05, 2000)
    noise = noise_of_steps(tuple(steps), (0.0, 0.0))
    mean = steps.mean()
    assert slowest(noise, 1, (2000, 20), (5,)).mean() == pytest.approx(1, rel=0.005)
    for num_ranks in (64, 8192):  # E[max] of exponentials: the harmonic number
        expected = (1 + 0.05 * (np.log(num_ranks) + 0.5772)) / mean
        assert slowest(noise, num_ranks, (2000, 20), (5,)).mean() == pytest.approx(expected, rel=0.03)


def test_a_few_steps_are_no_distribution():
    assert noise_of_steps((0.3, 0.4), (0.01, 0.1)) == Noise(variation=(0.01, 0.1))
