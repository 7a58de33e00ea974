"""Exact tests against textbooks, brute force and their laws."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.findings.contrasts import MAX_EXACT, holm, sign_flips, smallest_p, standardised
from dlscale.analysis.statistics import blocks_needed

# Darwin's maize: heights of 15 pairs of plants, crossed minus self-fertilised, in eighths of an inch.
DARWIN = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]

LOGS = st.lists(st.integers(-1000, 1000).map(lambda one: one / 1000), min_size=1, max_size=8)
PROBABILITIES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def test_fishers_own_example():
    """The Design of Experiments, section 21: 1,726 of 32,768 ways differ as much as the experiment did, or more."""
    assert sign_flip(DARWIN) == 1726 / 32768


def sign_flip(logs):
    (probability,) = sign_flips([logs])
    return probability


def test_comparisons_that_are_tested_together_have_the_probabilities_of_each_alone():
    random = np.random.default_rng(0)
    comparisons = [random.normal(0.3, 1.0, number).tolist() for number in (3, 40, 8, 40, 20, 3)]
    assert sign_flips(comparisons) == [sign_flip(logs) for logs in comparisons]


@given(LOGS)
def test_all_signs_are_tried(logs):
    least = abs(sum(logs)) - 1e-9
    ways = list(itertools.product((-1, 1), repeat=len(logs)))
    extreme = sum(
        abs(sum(sign * log for sign, log in zip(signs, logs, strict=True))) >= least for signs in ways
    )
    assert sign_flip(logs) == pytest.approx(extreme / len(ways))
    assert smallest_p(len(logs)) <= sign_flip(logs) <= 1


@given(LOGS, st.randoms())
def test_neither_order_nor_unit_nor_side_matters(logs, random):
    found = sign_flip(logs)
    shuffled = random.sample(logs, len(logs))
    assert sign_flip(shuffled) == found
    assert sign_flip([-one for one in logs]) == found
    assert sign_flip([64 * one for one in logs]) == found


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=16))
def test_the_smallest_p_is_that_of_blocks_that_all_agree(logs):
    assert sign_flip(logs) == smallest_p(len(logs)) == 2.0 ** (1 - len(logs))


def test_beyond_sixteen_blocks_signs_are_drawn_always_the_same_ones():
    logs = [1.0] * 18 + [-1.0] * 2
    exact = 2 * sum(math.comb(20, below) for below in range(3)) / 2**20
    found = sign_flip(logs)
    assert len(logs) > MAX_EXACT
    assert found == sign_flip(logs)
    assert found == pytest.approx(exact, abs=4 * math.sqrt(exact / 2**16))
    assert sign_flip([1.0] * 40) == smallest_p(40) == 2**-16


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.03125, 0.03125], [0.0625, 0.0625]),
        ([0.015625, 0.04], [0.03125, 0.04]),
        ([0.5], [0.5]),
        ([], []),
    ],
)
def test_holm_by_hand(p_values, adjusted):
    assert holm(p_values) == pytest.approx(adjusted)


@given(PROBABILITIES, st.data())
def test_holm_keeps_the_order_within_bonferronis_limits_and_a_smaller_p_hurts_nobody(p_values, data):
    found = holm(p_values)
    ranked = sorted(zip(p_values, found, strict=True))
    assert [one for _, one in ranked] == sorted(found)
    assert all(one <= new <= min(1, len(found) * one) + 1e-12 for one, new in ranked)
    index = data.draw(st.integers(0, len(p_values) - 1))
    smaller = [*p_values]
    smaller[index] *= data.draw(st.floats(0, 1))
    assert all(new <= old + 1e-12 for new, old in zip(holm(smaller), found, strict=True))


@pytest.mark.parametrize("num_comparisons", range(1, 40))
def test_blocks_needed_are_those_by_which_the_smallest_p_survives(num_comparisons):
    needed = blocks_needed(num_comparisons)
    assert holm([smallest_p(needed)] * num_comparisons)[0] <= 0.05
    assert holm([smallest_p(needed - 1)] * num_comparisons)[0] > 0.05


@pytest.mark.parametrize("num_blocks", [3, 6, 10])
@pytest.mark.parametrize("true_effect", [0.0, 1.0, 3.0])
def test_the_interval_of_the_effect_holds_its_level(num_blocks, true_effect):
    generator = np.random.default_rng(1908)
    hits = 0
    for _ in range(2000):  # standard error 0.5 %
        found = standardised(true_effect + generator.standard_normal(num_blocks))
        hits += found.low <= true_effect <= found.high
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=12), st.floats(0.1, 10))
def test_an_effect_has_no_unit_and_two_sides(logs, unit):
    found = standardised(logs)
    if found is not None and np.std(logs) > 1e-3:
        other = standardised([-unit * one for one in logs])
        assert other.center == pytest.approx(-found.center, rel=1e-6, abs=1e-9)
        assert other.low == pytest.approx(-found.high, rel=1e-5, abs=1e-6)
        assert found.low <= found.center <= found.high


def test_without_values_or_spread_there_is_nothing_to_test():
    with pytest.raises(ValueError, match="no log ratios"):
        sign_flip([])
    assert smallest_p(0) == 1
    for logs in ([], [0.1, 0.2], [0.1] * 6, [0.0] * 6):
        assert standardised(logs) is None
