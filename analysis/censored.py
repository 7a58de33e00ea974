"""Statistics of runs that end when they reach a target, or short of it when their time is over.

A run that ended short is censored: it would have taken longer than it did, nobody knows how long. It counts as longer
than every run that arrived, never as missing: a mean over those that arrived would flatter whoever fails often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betaincinv

from dlscale.analysis.statistics import INSUFFICIENT, LEVEL, Interval, half_width, median_coverage


@dataclass(frozen=True, slots=True)
class Run:
    """What a run took until it reached its target; or until it was ended, if it did not."""

    cost: float
    reached: bool


def median_cost(runs: Sequence[Run], *, level: float = LEVEL) -> Interval | None:
    """The median with its interval between order statistics; None where half of the runs or fewer arrived.

    The upper limit is None where too few arrived. Coverage is that of order statistics, at least `level`, whatever the
    distribution; it is not interpolated, for nothing is known between the last run that arrived and the next.
    """
    costs = sorted(run.cost if run.reached else math.inf for run in runs)
    n = len(costs)
    middle = (costs[(n - 1) // 2] + costs[n // 2]) / 2 if n else math.inf
    if not math.isfinite(middle):
        return None
    rank = max((rank for rank in range(1, n // 2 + 1) if median_coverage(n, rank) >= level), default=None)
    if rank is None:
        return Interval(center=middle, low=None, high=None, level=level, method=INSUFFICIENT, n=n)
    high = costs[n - rank]
    return Interval(
        center=middle,
        low=costs[rank - 1],
        high=high if math.isfinite(high) else None,
        level=level,
        method="order statistics, censored",
        n=n,
    )


def reached_share(runs: Sequence[Run], *, level: float = LEVEL) -> Interval:
    """The share of runs that arrived."""
    return share_of(sum(run.reached for run in runs), len(runs), level=level)


def share_of(count: int, n: int, *, level: float = LEVEL) -> Interval:
    """A share of n, with the interval of C. J. Clopper and E. S. Pearson (Biometrika 26, 1934)."""
    tail = (1 - level) / 2
    return Interval(
        center=count / n,
        low=float(betaincinv(count, n - count + 1, tail)) if count else 0.0,
        high=float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0,
        level=level,
        method="Clopper-Pearson",
        n=n,
    )


def expected_cost(runs: Sequence[Run], *, limit: float, level: float = LEVEL) -> Interval | None:
    """What the target costs if every run that ends short of it is followed by another; None if no run arrived.

    `limit` is the cost at which a run is ended.

    All costs over the number of arrivals: the expected running time (ERT) of N. Hansen, A. Auger, S. Finck and R. Ros,
    Real-Parameter Black-Box Optimization Benchmarking, INRIA RR-6828 (2009). With mean costs T of arrivals and F of
    the others and share p it is T + (1 - p) / p F. The interval joins those of T (t) and of p (Clopper-Pearson), each
    at half the error, so that it covers at least `level`; that of T needs 3 arrivals. F is the mean of what was seen,
    T where nothing ended short, and at least `limit` in the upper limit: what ends short later may use all of it.
    """
    arrived = np.array([run.cost for run in runs if run.reached])
    others = np.array([run.cost for run in runs if not run.reached])
    if not len(arrived):
        return None
    each, failed = float(arrived.mean()), float(others.mean()) if len(others) else float(arrived.mean())
    center = each + len(others) / len(arrived) * failed
    found = Interval(center=center, low=None, high=None, level=level, method=INSUFFICIENT, n=len(runs))
    if len(arrived) < 3:
        return found
    inner = (1 + level) / 2
    half = half_width(len(arrived), level=inner) * float(arrived.std(ddof=1))
    share = reached_share(runs, level=inner)
    return replace(
        found,
        low=max(each - half, 0.0) + _odds_against(share.high) * failed,
        high=each + half + _odds_against(share.low) * max(failed, limit),
        method="t and Clopper-Pearson",
    )


def _odds_against(share: float | None) -> float:
    return math.inf if not share else (1 - share) / share
