"""Intervals against textbooks and against counting; tests/analysis/coverage has what they cover."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.statistics import (
    INSUFFICIENT,
    Interval,
    block_median,
    blocks_needed,
    censored_median,
    coverage,
    difference,
    disagree,
    effect_size,
    expected_cost,
    half_width,
    holm,
    median_interval,
    ratio,
    share,
    sign_flips,
    smallest_p,
)

NAN = math.nan


def limits(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def test_coverage_is_what_counting_all_outcomes_gives():
    # Each of 7 values is below the median or not; the 2nd smallest and largest enclose it if 2..5 are below.
    outcomes = [bin(below).count("1") for below in range(2**7)]
    assert coverage(7, 2) == pytest.approx(sum(2 <= below <= 5 for below in outcomes) / 2**7)


@pytest.mark.parametrize("num_values", [1, 2, 3, 4, 5])
def test_five_launches_or_fewer_have_no_interval_of_the_median(num_values):
    interval = median_interval(range(1, num_values + 1))
    assert np.isnan(limits(interval)).all()
    assert (interval.center, interval.method) == ((num_values + 1) / 2, INSUFFICIENT)


@pytest.mark.parametrize(
    ("num_values", "level", "low"),
    [
        # At a level that a pair has exactly the interval is that pair.
        (6, 0.96875, 1),
        (9, 1 - 20 / 512, 2),
        (2, 0.5, 1),
        # Of 6 values whole pairs cover with 96.875 and 78.125 %: 95 is a tenth of the way.
        (6, 0.95, 1.1),
        (8, 0.95, 1.675),
        (10, 0.95, 2.3244),
        # Limits of a low level move on towards the median.
        (3, 0.25, 2 - 1 / 3),
        (2, 0.25, 1.25),
    ],
)
def test_limits_of_the_median_are_interpolated_between_pairs(num_values, level, low):
    interval = median_interval(range(num_values, 0, -1), level=level)
    assert limits(interval) == pytest.approx((low, num_values + 1 - low), abs=1e-4)


@given(st.lists(st.floats(0.1, 10), min_size=6, max_size=30), st.floats(0.5, 0.96))
def test_a_higher_level_is_never_narrower(values, level):
    narrow, wide = median_interval(values, level=level), median_interval(values, level=level + 0.005)
    assert wide.low <= narrow.low + 1e-12
    assert wide.high >= narrow.high - 1e-12
    assert min(values) <= narrow.low <= narrow.center <= narrow.high <= max(values)


def test_a_rate_has_the_limits_of_its_cost_the_other_way_round():
    cost = median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert cost.rate(10)[:3] == (10 / cost.center, 10 / cost.high, 10 / cost.low)
    assert cost.complement()[:3] == (1 - cost.center, 1 - cost.high, 1 - cost.low)


def test_the_centre_of_a_ratio_is_that_of_geometric_means_over_common_blocks():
    found = ratio([2.0, 8.0, 4.0, 100.0, NAN], [1.0, 3.0, 9.0, NAN, 100.0])
    assert found.center == pytest.approx((64 / 27) ** (1 / 3))
    assert (found.method, found.n) == ("paired t", 3)


def test_the_t_interval_is_the_one_of_the_textbook():
    # Five log ratios with mean 0.3 and standard deviation sqrt(0.025); t(0.975, 4) = 2.776.
    found = ratio(np.exp([0.1, 0.2, 0.3, 0.4, 0.5]), np.ones(5))
    half = 2.776445 * math.sqrt(0.025 / 5)
    assert np.log([found.low, found.center, found.high]) == pytest.approx([0.3 - half, 0.3, 0.3 + half])
    narrow = ratio(np.exp([0.1, 0.2, 0.3, 0.4, 0.5]), np.ones(5), level=0.5)  # t(0.75, 4) = 0.740697
    assert math.log(narrow.high) == pytest.approx(0.3 + 0.740697 * math.sqrt(0.025 / 5))


def test_the_unpaired_interval_is_welchs():
    # Log values 0, 1, 2 over -2, 0, 2, 0: variances of the means 1/3 and 8/12, together 1.
    # Freedom 1 / ((1/9) / 2 + (4/9) / 3) = 54/11 = 4.909; t(0.975, 4.909) = 2.584966.
    over, under = np.exp([0, 1, 2, NAN, NAN, NAN, NAN]), np.exp([NAN, NAN, NAN, -2, 0, 2, 0])
    found = ratio(over, under)
    assert np.log([found.low, found.center, found.high]) == pytest.approx(
        [1 - 2.584966, 1, 1 + 2.584966], abs=1e-4
    )
    assert (found.method, found.n) == ("unpaired t", 3)


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_two_blocks_or_fewer_have_no_interval_of_the_ratio(num_blocks):
    paired = ratio(np.ones(num_blocks), np.ones(num_blocks))
    assert (paired.center, paired.method) == (1.0, INSUFFICIENT)
    unpaired = ratio([1.0] * num_blocks + [NAN] * 5, [NAN] * num_blocks + [1.0] * 5)
    assert np.isnan([*limits(paired), *limits(unpaired)]).all()
    assert unpaired.method == f"{INSUFFICIENT}, unpaired"
    assert np.isnan(ratio([NAN], [1.0]).center)


def test_values_without_any_spread_have_an_interval_without_width():
    assert limits(ratio([4.0] * 3, [2.0] * 3)) == pytest.approx((2.0, 2.0))


def test_the_interval_of_a_difference_is_the_one_of_the_textbook():
    first, second = [0.3, 0.4, 0.5, 0.2, 0.6], [0.1, 0.3, 0.2, 0.1, 0.3]
    drift = np.array([0.0, 0.5, -0.7, 0.2, 1.0])
    found = difference(np.exp(first + drift), np.exp(second + drift), np.exp(drift))
    over, under = math.exp(0.4), math.exp(0.2)
    terms = over * np.array(first) - under * np.array(second)
    half = 2.776445 * terms.std(ddof=1) / math.sqrt(5)  # t(0.975, 4)
    assert found.center == pytest.approx(over - under)
    assert limits(found) == pytest.approx((over - under - half, over - under + half))
    assert np.isnan(difference([1.0, NAN], [1.0, 1.0], [NAN, 1.0]).center)


def test_the_median_of_blocks_is_that_of_common_ones():
    assert block_median([2.0, 2.2, 8.0, 9.0, NAN], [1.0, 1.0, 2.0, NAN, 1.0]) == pytest.approx(2.2)
    assert block_median([1.0, 3.0, 5.0, NAN, NAN], [NAN, NAN, NAN, 2.0, 4.0]) == pytest.approx(1.0)


def test_two_centres_disagree_beyond_1_percent_and_half_of_the_half_interval():
    assert [disagree(1.0, (0.9, 1.2), median) for median in (0.96, 0.94, 1.09, 1.11)] == [
        False,
        True,
        False,
        True,
    ]
    assert [disagree(1.0, (0.995, 1.005), median) for median in (1.0099, 1.0101)] == [False, True]
    assert not disagree(1.0, (NAN, NAN), 2.0)


def test_a_chain_of_ratios_is_their_product_and_has_the_noise_of_each():
    generator, hits, blank = np.random.default_rng(11), 0, np.full(6, NAN)
    for _ in range(1000):
        first, second = 0.2 * generator.standard_normal((2, 6))
        noise = 0.01 * generator.standard_normal((4, 6))
        over = np.concatenate([0.5 * np.exp(first + noise[0]), blank])
        link = np.concatenate([np.exp(first + noise[1]), np.exp(second + noise[2])])
        under = np.concatenate([blank, 0.8 * np.exp(second + noise[3])])
        found = ratio(over, link, under)
        hits += found.low <= 0.625 <= found.high
    assert found.method.startswith("chained t")
    assert 0.94 <= hits / 1000 <= 0.98
    few = ratio([1.0, NAN], [1.0, 2.0], [NAN, 2.0])
    assert (few.center, few.method) == (1.0, "insufficient data, chained")


def test_intervals_narrow_with_blocks():
    assert half_width(6) == pytest.approx(2.5706 / math.sqrt(6), rel=1e-4)
    assert half_width(1) == math.inf


def test_sign_flips_count_all_signs_and_draw_many_of_more():
    assert sign_flips([0.1, 0.2, 0.3]) == pytest.approx(2 / 8)  # all signs equal, either way
    assert sign_flips([0.1, -0.2, 0.3]) == pytest.approx(6 / 8)
    assert sign_flips([1.0] * 20) == pytest.approx(1 / 65_536, rel=2)
    assert np.isnan(sign_flips([]))
    assert [smallest_p(n) for n in (0, 3, 6)] == [1.0, 0.25, 2.0**-5]


def test_holms_correction_is_the_one_of_the_paper():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert list(holm([])) == []
    assert [blocks_needed(count) for count in (1, 2, 6)] == [6, 7, 8]


def test_an_effect_has_the_interval_of_the_noncentral_t():
    found = effect_size([0.1, 0.2, 0.3])
    assert found.center == pytest.approx(2.0)
    assert found.low < 2.0 < found.high
    assert np.isnan(effect_size([0.1, 0.1, 0.1]).center)


def costs(values, *, limit=math.inf):
    """Costs of runs that would need `values`, ended at `limit`, and whether they arrived."""
    series = pd.Series(values, dtype=float)
    return series.clip(upper=limit), series <= limit


def test_a_run_that_did_not_arrive_is_longer_than_all_that_did():
    found = censored_median([1, 2, 3, 4, 5, math.inf])
    assert (found.center, found.low) == (3.5, 1)
    assert np.isnan(found.high)
    assert np.isnan(censored_median([1, 2, 3, *[math.inf] * 3]).center), (
        "half of them: nobody knows the middle"
    )
    assert np.isnan(censored_median([]).center)
    assert np.isnan(censored_median(range(1, 6)).low)
    assert limits(censored_median(range(1, 7))) == (1, 6)


@pytest.mark.parametrize(
    ("reached", "low", "high"), [(0, 0.0, 0.4593), (3, 0.1181, 0.8819), (6, 0.5407, 1.0)]
)
def test_shares_of_six(reached, low, high):
    """Limits solve P(X >= k) = 2.5 % and P(X <= k) = 2.5 %; for 0 and 6 of 6, 0.025^(1/6) = 0.5407 by hand."""
    assert limits(share(reached, 6)) == pytest.approx((low, high), abs=1e-4)


def test_the_expected_cost_is_all_costs_over_the_arrivals():
    found = expected_cost(*costs([2, 4, 6, 60], limit=10), limit=10)
    assert found.center == pytest.approx((2 + 4 + 6 + 10) / 3)
    assert found.low < found.center < found.high
    assert np.isnan(expected_cost(*costs([50, 60], limit=10), limit=10).center)
    assert np.isnan(expected_cost(*costs([2, 60], limit=10), limit=10).low)


@pytest.mark.parametrize("num_runs", [6, 12])
@pytest.mark.parametrize("arriving", [0.7, 0.999999])
def test_intervals_of_runs_cover_what_they_claim(num_runs, arriving):
    """Log-normal costs, ended at a limit; studies without a limit on a side say that they do not know."""
    generator = np.random.default_rng(7)
    many = np.exp(0.5 * np.random.default_rng(2).standard_normal(10**6))
    limit = float(np.quantile(many, arriving))
    truth = many[many <= limit].mean() + (1 - arriving) / arriving * limit
    hits = np.zeros(2)
    for _ in range(1000):
        own, reached = costs(np.exp(0.5 * generator.standard_normal(num_runs)), limit=limit)
        both = censored_median(own.where(reached, math.inf)), expected_cost(own, reached, limit=limit)
        hits += [not (one.low > at or one.high < at) for one, at in zip(both, (1.0, truth), strict=True)]
    assert (hits / 1000 >= 0.935).all()


@pytest.mark.parametrize("limit", [3, 20])
def test_the_expected_cost_where_nothing_failed_holds_what_a_failure_costs(limit):
    """Runs of which one in five is lost at the limit, of studies that happened to have none of them."""
    generator = np.random.default_rng(7)
    truth = math.exp(0.2**2 / 2) + 0.2 / 0.8 * limit
    lucky = np.exp(0.2 * generator.standard_normal((300, 6)))
    found = [expected_cost(*costs(own), limit=limit) for own in lucky]
    assert np.mean([one.low <= truth <= one.high for one in found]) >= 0.94
