"""The gate of asynchronous training that needs no ranks."""

import math

import numpy as np
import pytest

from dlscale.benchmarks.rank.turns import falling_gate


class Ranks:
    """A control plane whose other rank has the same values times two."""

    def allgather(self, value):
        return [value, 2 * value]


class Alike:
    """A control plane whose other rank has the same values."""

    def allgather(self, value):
        return [value, value]


@pytest.mark.parametrize(
    ("first", "last", "passed"),
    [
        ([2.0, 1.0], [0.5, 0.4], True),
        ([1.0, 1.0], [1.0, 1.0], True),
        ([1.0, 1.1, 0.9], [1.05, 1.1, 1.0], True),
        ([1.0, 1.1, 0.9], [1.6, 1.5, 1.7], False),
        ([1.0, 1.0], [1.01, 1.01], False),
        ([1.0, 1.0], [math.nan, 1.0], False),
        ([1.0, 1.0], [math.inf, 1.0], False),
    ],
)
def test_the_loss_may_not_rise_beyond_chance(first, last, passed):
    assert falling_gate(first, last, control=Alike()).passed == passed


def test_all_ranks_count():
    gate = falling_gate([1.0, 1.0], [0.9, 0.9], control=Ranks())
    assert gate.value == pytest.approx(0.9)
    assert gate.tolerance > 1


class Drawn:
    """A control plane whose other rank has losses of its own."""

    def __init__(self, others):
        self._others = iter(others)

    def allgather(self, value):
        return [value, next(self._others)]


def test_chance_seldom_fails_a_training_that_stands_still():
    draws = np.random.default_rng(7).lognormal(0.0, 0.4, size=(4000, 4, 5))
    passed = [falling_gate(one[0], one[1], control=Drawn(one[2:])).passed for one in draws]
    assert np.mean(passed) > 0.99


def test_a_ratio_that_is_no_number_is_not_recorded_as_one():
    gate = falling_gate([1.0, 1.0], [math.nan, 1.0], control=Alike())
    assert gate.value is None
    assert gate.tolerance == 1.0
    assert not gate.passed
