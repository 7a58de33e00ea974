import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.statistics import (
    INSUFFICIENT,
    Interval,
    block_difference,
    block_median,
    block_ratio,
    chained_ratio,
    disagree,
    half_width,
    median_coverage,
    median_interval,
)


def test_median_coverage_is_what_counting_all_outcomes_gives():
    # Each of 7 values is below the median or not; the 2nd smallest and largest enclose it if 2..5 are below.
    outcomes = [bin(below).count("1") for below in range(2**7)]
    assert median_coverage(7, 2) == sum(2 <= below <= 5 for below in outcomes) / 2**7


@pytest.mark.parametrize("num_values", [1, 2, 3, 4, 5])
def test_five_launches_or_fewer_have_no_interval_of_the_median(num_values):
    interval = median_interval(list(range(1, num_values + 1)))
    assert (interval.low, interval.high, interval.method) == (None, None, INSUFFICIENT)
    assert interval.center == (num_values + 1) / 2


@pytest.mark.parametrize(
    ("num_values", "level", "low"),
    [
        # At a level that a pair has exactly the interval is that pair.
        (6, 0.96875, 1),
        (8, 0.9921875, 1),
        (9, 1 - 20 / 512, 2),
        (10, 1 - 22 / 1024, 2),
        (2, 0.5, 1),
        (3, 0.75, 1),
        # Of 6 values whole pairs cover with 96.875 and 78.125 %: 95 is a tenth of the way.
        (6, 0.95, 1.1),
        (8, 0.95, 1.675),
        (9, 0.95, 2.0778),
        (10, 0.95, 2.3244),
        # Limits of a low level move on towards the median.
        (3, 0.25, 2 - 1 / 3),
        (2, 0.25, 1.25),
    ],
)
def test_limits_of_the_median_are_interpolated_between_pairs(num_values, level, low):
    interval = median_interval(list(range(num_values, 0, -1)), level=level)
    assert (interval.low, interval.high) == pytest.approx((low, num_values + 1 - low), abs=1e-4)
    assert interval.level == level


@given(st.lists(st.floats(0.1, 10), min_size=6, max_size=30), st.floats(0.5, 0.96))
def test_a_higher_level_is_never_narrower(values, level):
    narrow, wide = median_interval(values, level=level), median_interval(values, level=level + 0.005)
    assert wide.low <= narrow.low + 1e-12
    assert wide.high >= narrow.high - 1e-12
    assert min(values) <= narrow.low <= narrow.center <= narrow.high <= max(values)


@given(st.lists(st.floats(0.1, 10), min_size=6, max_size=30), st.floats(1, 1000))
def test_a_rate_has_the_limits_of_its_cost_the_other_way_round(seconds, samples):
    cost = median_interval(seconds)
    rate = cost.rate(samples)
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low <= rate.center <= rate.high
    assert rate.center == samples / cost.center
    assert (rate.low, rate.high) == (samples / cost.high, samples / cost.low)


def test_the_centre_of_a_ratio_is_the_ratio_of_geometric_means():
    over, under = {0: 2.0, 1: 8.0, 2: 4.0}, {0: 1.0, 1: 3.0, 2: 9.0}
    ratio = block_ratio(over, under)
    assert math.isclose(ratio.center, (4.0**3 / 27) ** (1 / 3))
    assert (ratio.method, ratio.n) == ("paired t", 3)


def test_only_common_blocks_count():
    ratio = block_ratio({0: 2.0, 1: 2.0, 2: 2.0, 7: 100.0}, {0: 1.0, 1: 1.0, 2: 1.0, 9: 100.0})
    assert (ratio.center, ratio.n) == (pytest.approx(2.0), 3)
    assert ratio.low == pytest.approx(2.0)


def test_without_a_common_block_a_ratio_is_labelled_unpaired():
    ratio = block_ratio({0: 2.0, 1: 2.1, 2: 1.9}, {3: 1.0, 4: 1.1, 5: 0.9})
    assert ratio.method == "unpaired t"
    assert ratio.low is not None
    assert ratio.low < 2.0


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_two_blocks_or_fewer_have_no_interval_of_the_ratio(num_blocks):
    values = {block: 2.0 + block for block in range(num_blocks)}
    paired = block_ratio(values, values)
    assert (paired.center, paired.low, paired.high, paired.method) == (1.0, None, None, INSUFFICIENT)
    unpaired = block_ratio(values, {block + 10: 1.0 for block in range(5)})
    assert (unpaired.low, unpaired.high) == (None, None)
    assert unpaired.method == f"{INSUFFICIENT}, unpaired"


def test_a_ratio_of_no_values_is_refused():
    for over, under in (({}, {0: 1.0}), ({0: 1.0}, {}), ({}, {})):
        with pytest.raises(ValueError, match="no ratio of"):
            block_ratio(over, under)


def test_values_without_any_spread_have_an_interval_without_width():
    for blocks in ((0, 1, 2), (3, 4, 5)):
        ratio = block_ratio({0: 4.0, 1: 4.0, 2: 4.0}, dict.fromkeys(blocks, 2.0))
        assert (ratio.low, ratio.center, ratio.high) == pytest.approx((2.0, 2.0, 2.0))


def test_the_unpaired_interval_is_welchs():
    # Log values 0, 1, 2 over -2, 0, 2, 0: variances of the means 1/3 and 8/12, together 1.
    # Freedom 1 / ((1/9) / 2 + (4/9) / 3) = 54/11 = 4.909; t(0.975, 4.909) = 2.584966.
    over = {f"over {log}": math.exp(log) for log in (0, 1, 2)}
    under = dict(enumerate(map(math.exp, (-2, 0, 2, 0))))
    ratio = block_ratio(over, under)
    assert np.log([ratio.low, ratio.center, ratio.high]) == pytest.approx(
        [1 - 2.584966, 1, 1 + 2.584966], abs=1e-4
    )
    assert (ratio.method, ratio.n, ratio.level) == ("unpaired t", 3, 0.95)


def test_a_level_of_ones_own_is_the_intervals():
    # t(0.75, 4) = 0.740697
    logs = {i: math.exp(log) for i, log in enumerate((0.1, 0.2, 0.3, 0.4, 0.5))}
    ratio = block_ratio(logs, dict.fromkeys(range(5), 1.0), level=0.5)
    assert math.log(ratio.high) == pytest.approx(0.3 + 0.740697 * math.sqrt(0.025 / 5))
    assert ratio.level == 0.5
    difference = block_difference(logs, dict.fromkeys(range(5), 1.0), dict.fromkeys(range(5), 1.0), level=0.5)
    half = math.exp(0.3) * 0.740697 * math.sqrt(0.025 / 5)
    assert difference.high - difference.center == pytest.approx(half)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_ratio_of_impossible_values_is_refused(wrong):
    with pytest.raises(ValueError, match="positive finite"):
        block_ratio({0: 1.0}, {0: wrong})


def test_the_t_interval_is_the_one_of_the_textbook():
    # Five log ratios with mean 0.3 and standard deviation sqrt(0.025); t(0.975, 4) = 2.776.
    logs = [0.1, 0.2, 0.3, 0.4, 0.5]
    ratio = block_ratio({i: math.exp(log) for i, log in enumerate(logs)}, dict.fromkeys(range(5), 1.0))
    half = 2.776445 * math.sqrt(0.025 / 5)
    assert np.log([ratio.low, ratio.center, ratio.high]) == pytest.approx([0.3 - half, 0.3, 0.3 + half])


def logs_to_blocks(logs):
    return {block: math.exp(log) for block, log in enumerate(logs)}


def test_the_interval_of_a_difference_is_the_one_of_the_textbook():
    first, second = [0.3, 0.4, 0.5, 0.2, 0.6], [0.1, 0.3, 0.2, 0.1, 0.3]
    drift = [0.0, 0.5, -0.7, 0.2, 1.0]
    found = block_difference(
        logs_to_blocks(np.add(first, drift)), logs_to_blocks(np.add(second, drift)), logs_to_blocks(drift)
    )
    over, under = math.exp(0.4), math.exp(0.2)
    assert found.center == pytest.approx(over - under)
    terms = over * np.array(first) - under * np.array(second)
    half = 2.776445 * terms.std(ddof=1) / math.sqrt(5)  # t(0.975, 4)
    assert (found.low, found.high) == pytest.approx((over - under - half, over - under + half))
    assert (found.method, found.level, found.n) == ("paired t", 0.95, 5)


def test_a_difference_needs_blocks_that_all_three_have():
    found = block_difference(
        {0: 2.0, 1: 2.0, 2: 2.0, 3: 9.0}, {0: 1.5, 1: 1.5, 2: 1.5, 4: 9.0}, {0: 1.0, 1: 1.0}
    )
    assert (found.center, found.low, found.high) == (pytest.approx(0.5), None, None)
    assert (found.method, found.n) == (INSUFFICIENT, 2)
    with pytest.raises(ValueError, match="no common block"):
        block_difference({0: 1.0}, {0: 1.0}, {1: 1.0})
    with pytest.raises(ValueError, match="positive finite"):
        block_difference({0: 1.0}, {0: 0.0}, {0: 1.0})


def test_the_median_of_blocks_is_that_of_common_ones():
    over, under = {0: 2.0, 1: 2.2, 2: 8.0, 3: 9.0}, {0: 1.0, 1: 1.0, 2: 2.0, 9: 1.0}
    assert block_median(over, under) == pytest.approx(2.2)
    assert block_median({0: 1.0, 1: 3.0, 2: 5.0}, {7: 2.0, 8: 4.0}) == pytest.approx(1.0)


def test_two_centres_disagree_beyond_1_percent_and_half_of_the_half_interval():
    ratio = Interval(center=1.0, low=0.9, high=1.2, level=0.95, method="paired t", n=6)
    assert [disagree(ratio, median) for median in (0.96, 0.94, 1.09, 1.11)] == [False, True, False, True]
    narrow = Interval(center=1.0, low=0.995, high=1.005, level=0.95, method="paired t", n=6)
    assert [disagree(narrow, median) for median in (1.0099, 1.0101)] == [False, True]
    assert not disagree(Interval(center=1.0, low=None, high=None, level=0.95, method="", n=2), 2.0)


def test_a_chain_of_ratios_is_their_product_and_has_the_noise_of_each():
    generator = np.random.default_rng(11)
    hits = 0
    for _ in range(2000):
        first, second = 0.2 * generator.standard_normal((2, 6))
        noise = 0.01 * generator.standard_normal((4, 6))
        over = dict(enumerate(0.5 * np.exp(first + noise[0])))
        link = dict(enumerate(np.exp(first + noise[1]))) | dict(enumerate(np.exp(second + noise[2]), start=6))
        under = dict(enumerate(0.8 * np.exp(second + noise[3]), start=6))
        ratio = chained_ratio([over, link, under])
        hits += ratio.low <= 0.625 <= ratio.high
    assert ratio.method.startswith("chained t")
    assert ratio.n == 6
    assert 0.94 <= hits / 2000 <= 0.98
    assert chained_ratio([over, link]) == block_ratio(over, link)
    few = chained_ratio([{0: 1.0}, {0: 1.0, 1: 2.0}, {1: 2.0}])
    assert (few.center, few.low, few.method) == (1.0, None, "insufficient data, chained")


def test_intervals_narrow_with_blocks():
    assert half_width(6) == pytest.approx(2.5706 / math.sqrt(6), rel=1e-4)
    assert half_width(2) == pytest.approx(12.7062 / math.sqrt(2), rel=1e-4)
    assert half_width(1) == math.inf
