"""The permutation test holds its level, finds what is there, and says how many launches it needs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.findings.stragglers import BAND, fewest_blocks, slow_ones


def study(generator, *, num_units, num_blocks, slow=1.0, noise=0.03, disturbed=0.0):
    """Times of units in launches; the first unit is slow, and some unit is badly disturbed in some launches."""
    blocks = []
    for _ in range(num_blocks):
        times = np.exp(noise * generator.standard_normal(num_units))
        times[0] *= slow
        if generator.random() < disturbed:
            times[generator.integers(num_units)] *= 2
        drift = np.exp(0.3 * generator.standard_normal())
        blocks.append({f"u{index}": drift * time for index, time in enumerate(times)})
    return blocks


@pytest.mark.parametrize(("num_units", "num_blocks"), [(2, 6), (4, 3), (4, 6), (16, 6)])
@pytest.mark.parametrize("disturbed", [0.0, 0.5])
def test_of_equal_ones_hardly_anybody_is_called_slow(num_units, num_blocks, disturbed):
    generator = np.random.default_rng(11)
    wrong = 0
    for _ in range(150):
        blocks = study(generator, num_units=num_units, num_blocks=num_blocks, disturbed=disturbed)
        wrong += any(one.certain for one in slow_ones(blocks))
    assert wrong / 150 <= 0.09  # 5 % and two standard errors


@pytest.mark.parametrize(("num_units", "num_blocks"), [(2, 6), (4, 4), (16, 6), (64, 3)])
def test_a_slow_one_is_found_and_nobody_else(num_units, num_blocks):
    generator = np.random.default_rng(12)
    for _ in range(30):
        blocks = study(generator, num_units=num_units, num_blocks=num_blocks, slow=1.2, noise=0.01)
        assert [one.name for one in slow_ones(blocks) if one.certain] == ["u0"]


def test_the_effect_is_beside_the_others_and_the_drift_cancels():
    blocks = study(np.random.default_rng(1), num_units=5, num_blocks=6, slow=1.1, noise=0.0)
    (one,) = slow_ones(blocks)
    assert (one.slower.center, one.slower.low, one.slower.high) == pytest.approx((0.1, 0.1, 0.1))
    assert one.slower.n == 6


def test_what_is_slow_once_is_not_slow():
    blocks = [{"a": 1.0, "b": 1.0 + 1e-3 * index, "c": 1.001} for index in range(6)]
    blocks[2]["a"] = 3.0
    (one,) = slow_ones(blocks)
    assert (one.name, one.certain) == ("a", False)


def test_a_difference_that_matters_to_nobody_is_not_listed():
    blocks = study(np.random.default_rng(1), num_units=5, num_blocks=10, slow=1 + BAND / 2, noise=1e-4)
    assert slow_ones(blocks) == []


@given(st.integers(2, 5000), st.sampled_from([0.05, 0.025, 0.01]))
def test_fewest_blocks_are_the_first_that_suffice(num_units, alpha):
    blocks = fewest_blocks(num_units, alpha=alpha)
    assert num_units ** (1.0 - blocks) <= alpha
    assert blocks == 2 or num_units ** (2.0 - blocks) > alpha


@pytest.mark.parametrize(("num_units", "expected"), [(2, 6), (3, 4), (4, 4), (5, 3), (20, 2)])
def test_with_fewer_blocks_even_the_slowest_is_not_certain(num_units, expected):
    assert fewest_blocks(num_units) == expected
    for num_blocks in (expected - 1, expected):
        blocks = study(np.random.default_rng(4), num_units=num_units, num_blocks=num_blocks, slow=2.0)
        one = next(one for one in slow_ones(blocks) if one.name == "u0")
        assert one.certain == (num_blocks == expected)
        assert one.fewest_blocks == expected


def test_hosts_that_come_and_go_are_judged_by_the_launches_that_they_were_in():
    generator = np.random.default_rng(9)
    blocks = study(generator, num_units=6, num_blocks=12, slow=1.3, noise=0.01)
    for index, block in enumerate(blocks):
        del block["u5" if index % 2 else "u0"]
    (one,) = [one for one in slow_ones(blocks) if one.certain]
    assert (one.name, one.slower.n) == ("u0", 6)


def test_one_alone_or_nobody_is_not_slow():
    assert slow_ones([]) == slow_ones([{"a": 1.0}, {"a": 2.0}]) == []
