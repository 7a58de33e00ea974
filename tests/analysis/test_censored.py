"""Runs that end short of their target: what they leave of a median, a share and an expected time."""

import math

import numpy as np
import pytest

from dlscale.analysis.censored import Run, expected_cost, median_cost, reached_share


def runs(costs, *, limit=math.inf):
    """Runs that would need `costs`, ended at `limit`."""
    return [Run(min(cost, limit), cost <= limit) for cost in costs]


def test_a_run_that_did_not_arrive_is_longer_than_all_that_did():
    median = median_cost(runs([1, 2, 3, 4, 5, 60], limit=10))
    assert (median.center, median.low, median.high) == (3.5, 1, None)
    assert median_cost(runs([1, 2, 3, 40, 50, 60], limit=10)) is None, "half of them: nobody knows the middle"
    assert median_cost([]) is None


def test_six_runs_are_the_least_for_limits():
    assert median_cost(runs(range(1, 6))).low is None
    assert (median_cost(runs(range(1, 7))).low, median_cost(runs(range(1, 7))).high) == (1, 6)


@pytest.mark.parametrize(
    ("reached", "low", "high"), [(0, 0.0, 0.4593), (3, 0.1181, 0.8819), (6, 0.5407, 1.0)]
)
def test_shares_of_six(reached, low, high):
    """Limits solve P(X >= k) = 2.5 % and P(X <= k) = 2.5 %; for 0 and 6 of 6, 0.025^(1/6) = 0.5407 by hand."""
    share = reached_share([Run(1.0, index < reached) for index in range(6)])
    assert (share.low, share.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_the_expected_cost_is_all_costs_over_the_arrivals():
    found = expected_cost(runs([2, 4, 6, 60], limit=10), limit=10)
    assert found.center == pytest.approx((2 + 4 + 6 + 10) / 3)
    assert found.low < found.center < found.high
    assert expected_cost(runs([50, 60], limit=10), limit=10) is None
    assert expected_cost(runs([2, 60], limit=10), limit=10).low is None


COVERAGE, NUM_STUDIES = 0.94, 2000


@pytest.mark.parametrize("num_runs", [6, 8, 12])
@pytest.mark.parametrize("share", [0.7, 0.9, 0.999999])
def test_intervals_cover_what_they_claim(num_runs, share):
    """Log-normal costs; the limit is the quantile that lets `share` arrive. All studies' intervals against the truth.

    Studies without a limit on a side cover it: they say that they do not know.
    """
    rng = np.random.default_rng(7)
    limit = math.exp(0.5 * float(np.quantile(np.random.default_rng(1).standard_normal(10**6), share)))
    many = np.exp(0.5 * np.random.default_rng(2).standard_normal(10**6))
    arrived = many[many <= limit]
    truth = arrived.mean() + (1 - share) / share * limit
    medians = expected = 0
    for _ in range(NUM_STUDIES):
        study = runs(np.exp(0.5 * rng.standard_normal(num_runs)), limit=limit)
        median, cost = median_cost(study), expected_cost(study, limit=limit)
        medians += median is None or _covers(median, 1.0)
        expected += cost is None or _covers(cost, truth)
    assert medians / NUM_STUDIES >= COVERAGE
    assert expected / NUM_STUDIES >= COVERAGE


@pytest.mark.parametrize("num_runs", [6, 12])
@pytest.mark.parametrize("failing", [0.05, 0.2])
@pytest.mark.parametrize("limit", [3, 20])
def test_the_expected_cost_of_studies_in_which_nothing_failed_holds_what_a_failure_costs(
    num_runs, failing, limit
):
    """Runs that are lost by chance at the limit, of studies that happened to have none of them."""
    rng = np.random.default_rng(7)
    truth = math.exp(0.2**2 / 2) + failing / (1 - failing) * limit
    costs = np.exp(0.2 * rng.standard_normal((NUM_STUDIES, num_runs)))
    lucky = costs[rng.random(NUM_STUDIES) < (1 - failing) ** num_runs]
    hits = [_covers(expected_cost(runs(own, limit=limit), limit=limit), truth) for own in lucky]
    assert np.mean(hits) >= COVERAGE


def _covers(interval, truth):
    return (interval.low is None or interval.low <= truth) and (
        interval.high is None or truth <= interval.high
    )
