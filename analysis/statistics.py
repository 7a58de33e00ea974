"""Intervals of medians and of ratios over launches, and tests of paired differences.

The unit is the launch: windows of a launch are correlated. Launches of one block ran close in time, so a ratio is taken
block by block, and drift cancels. Arrays have one value per block, and NaN where a block has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:  # a plan needs no pandas
    import pandas as pd

LEVEL = 0.95
MIN_BLOCKS = 3  # for a t interval; with two it would be 12.7 standard errors wide, which says nothing
MIN_ORDERED = 6  # for an interval between order statistics at LEVEL
TWO_GROUPS = 9.7  # + n: twice the log likelihood ratio that a fifth of n normal values exceeds
ROUNDING = 1e-9  # of logarithms; values that differ by less are equal
MAX_APART = 0.01  # between the two centres of a ratio, without a note
INSUFFICIENT = "insufficient data"
MAX_EXACT = 16  # blocks of an exact sign-flip test
NUM_DRAWS = 2**16 - 1
Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """An estimate and its limits, NaN without enough values."""

    center: float
    low: float = np.nan
    high: float = np.nan
    n: float = 0  # launches, or blocks of a ratio
    method: str = INSUFFICIENT

    def columns(self, name: str) -> dict[str, Any]:
        """The interval as columns of a row: `name`, `name_low`, `name_high`, `name_n`, `name_method`."""
        ends = ("", *(f"_{field}" for field in self._fields[1:]))
        return {f"{name}{end}": value for end, value in zip(ends, self, strict=True)}

    def mapped(self, change: Any, *, falls: bool = False) -> Interval:
        """The interval of what `change` makes of the value; limits are swapped where it falls."""
        low, high = map(change, (self.high, self.low) if falls else (self.low, self.high))
        return self._replace(center=change(self.center), low=low, high=high)

    def complement(self) -> Interval:
        """1 minus this share."""
        return self.mapped(lambda value: 1 - value, falls=True)

    def times(self, factor: float) -> Interval:
        """The interval times a positive factor."""
        return self.mapped(lambda value: value * factor)

    def rate(self, amount: float) -> Interval:
        """`amount` over this cost."""
        return self.mapped(lambda value: amount / value, falls=True)


NONE = Interval(np.nan, method="", n=np.nan)


def known(values: ArrayLike) -> Floats:
    """The values that are not NaN."""
    array = np.asarray(values, np.float64)
    kept: Floats = array[~np.isnan(array)]
    return kept


@cache
def coverage(n: int, rank: int) -> float:
    """Probability that the median lies between the rank-th smallest and the rank-th largest of n values.

    It holds for any continuous distribution: each value falls on either side of the median like a fair coin.
    """
    return float(1 - 2 * scipy.special.bdtr(rank - 1, n, 0.5))


@cache
def _best_rank(n: int, level: float) -> int:
    """The narrowest pair of order statistics that covers enough; 0 if none does."""
    return max((rank for rank in range(1, n // 2 + 1) if coverage(n, rank) >= level), default=0)


def median_interval(values: ArrayLike, *, level: float = LEVEL) -> Interval:
    """The median and its distribution-free interval between order statistics.

    Pairs of order statistics have exact coverage, but at few levels, so the limits are interpolated from the narrowest
    pair that covers enough towards the next inner one, in proportion to the excess coverage. For normal, skewed,
    heavy-tailed and outlying noise the result still covers more than `level` (tests/analysis/coverage). 95 % needs 6
    values.
    """
    ordered = np.sort(known(values))
    n = len(ordered)
    if n == 0:
        return NONE
    rank, center = _best_rank(n, level), float(np.median(ordered))
    if not rank:
        return Interval(center, n=n)
    outer, inner = coverage(n, rank), coverage(n, rank + 1)
    inwards = (outer - level) / (outer - inner)
    low = ordered[rank - 1] + inwards * (ordered[rank] - ordered[rank - 1])
    high = ordered[n - rank] + inwards * (ordered[n - rank - 1] - ordered[n - rank])
    return Interval(center, float(low), float(high), n, "interpolated order statistics")


def ratio(*steps: ArrayLike, level: float = LEVEL) -> Interval:
    """The first over the last: the geometric mean over common blocks, with a t interval of the log ratios.

    Each log ratio is the difference of two launches' noise and so nearly symmetric even if the noise is skewed. Without
    a common block the two are unpaired (Welch). `steps` between the two are links: jobs that share no block, but each
    one with a link, are paired at each step, and the interval is that of the sum of independent means.
    """
    arrays = [np.asarray(step, float) for step in steps]
    logs = [known(np.log(over / under)) for over, under in pairwise(arrays)]
    if len(arrays) == 2 and not len(logs[0]):
        logs = [known(np.log(arrays[0])), -known(np.log(arrays[1]))]
    if not all(map(len, logs)):
        return NONE
    found = t_interval(logs, level=level).mapped(np.exp)
    return found._replace(method=found.method.replace("unpaired", "chained")) if len(arrays) > 2 else found


def block_median(*steps: ArrayLike) -> float:
    """The median over common blocks of the first over the last, by way of those between; NaN without a value."""
    product = 1.0
    for over, under in pairwise(np.asarray(step, float) for step in steps):
        blocks, ends = known(over / under), (known(over), known(under))
        if not len(blocks) and not all(map(len, ends)):
            return np.nan
        product *= float(np.median(blocks)) if len(blocks) else float(np.median(ends[0]) / np.median(ends[1]))
    return product


def disagree(center: float, limits: tuple[float, float], median: float) -> bool:
    """Whether a median ratio differs from that of geometric means by 1 % and half of the half-interval.

    Two held-up launches of one side do that in 72 to 94 % of studies of 6 to 10 launches, equal launches hardly ever.
    """
    limit = limits[1] if median > center else limits[0]
    return abs(median / center - 1) > MAX_APART and abs(median - center) > abs(limit - center) / 2


def t_interval(groups: Sequence[ArrayLike], *, center: float | None = None, level: float = LEVEL) -> Interval:
    """A t interval of the sum of the means of independent groups (Welch-Satterthwaite); one group is paired values.

    Where values fall in two groups, as when a neighbour slows a third of the launches, no limit is nearer than order
    statistics have it.
    """
    arrays = [np.asarray(group, float) for group in groups]
    n, paired = min(map(len, arrays)), "paired" if len(arrays) == 1 else "unpaired"
    center = float(sum(array.mean() for array in arrays)) if center is None else center
    if n < MIN_BLOCKS:
        method = INSUFFICIENT + ", unpaired" * (len(arrays) > 1)
        return Interval(center, method=method, n=n)
    variances = np.array([array.var(ddof=1) / len(array) for array in arrays])
    spread = (variances**2 / [len(array) - 1 for array in arrays]).sum()
    freedom = variances.sum() ** 2 / spread if spread else np.inf
    below = above = float(scipy.special.stdtrit(freedom, (1 + level) / 2) * np.sqrt(variances.sum()))
    method = f"{paired} t"
    if any(map(in_two_groups, arrays)):
        method += " with order statistics"
        distances = np.array([_distances(array, level) for array in arrays])
        below, above = np.maximum([below, above], np.sqrt((distances**2).sum(axis=0))).tolist()
    return Interval(center, center - below, center + above, n, method)


def in_two_groups(values: Floats) -> bool:
    """Whether values are likelier of two normal groups, of two values or more each, than of one."""
    n, centred = len(values), np.sort(values) - values.mean()
    spread = (centred**2).mean() if n else 0.0
    if n < MIN_ORDERED or spread < ROUNDING**2:
        return False
    below = np.arange(2, n - 1)
    above = n - below
    sums, squares = np.cumsum(centred)[below - 1], np.cumsum(centred**2)[below - 1]
    lower = (squares - sums**2 / below) / below
    upper = (n * spread - squares - sums**2 / above) / above
    likelihoods = below * np.log(lower / spread + ROUNDING) + above * np.log(upper / spread + ROUNDING)
    return bool(-likelihoods.min() > n + TWO_GROUPS)


def half_width(n: float, *, level: float = LEVEL) -> float:
    """Half the interval of a mean over n blocks, in standard deviations between blocks; inf below 2 blocks."""
    return float(scipy.special.stdtrit(n - 1, (1 + level) / 2) / np.sqrt(n)) if n > 1 else np.inf


def _distances(values: Floats, level: float) -> tuple[float, float]:
    """How far the limits of a mean are below and above it: by t, and by order statistics for two groups."""
    mean, half = float(values.mean()), half_width(len(values), level=level) * float(values.std(ddof=1))
    if not in_two_groups(values):
        return half, half
    ordered = median_interval(values, level=level)
    low, high = (values.min(), values.max()) if np.isnan(ordered.low) else (ordered.low, ordered.high)
    return max(half, mean - low), max(half, high - mean)


def difference(first: ArrayLike, second: ArrayLike, base: ArrayLike) -> Interval:
    """(first - second) / base over common blocks: the difference of two ratios, its interval to first order.

    So drift from block to block cancels, and noise in `base` counts only in proportion to the difference.
    """
    logs = np.log(np.array([first, second], float) / np.asarray(base, float))
    logs = logs[:, ~np.isnan(logs).any(axis=0)]
    if not logs.size:
        return NONE
    over, under = np.exp(logs.mean(axis=1))
    return t_interval([over * logs[0] - under * logs[1]], center=float(over - under))


def sign_flips(logs: ArrayLike) -> float:
    """Two-sided probability of a mean at least as far from 0, if each block's log ratio had either sign by chance.

    Exact up to 16 blocks; beyond, 65,535 random signs and the observed ones. NaN without a value.
    """
    values = np.asarray(logs, float)
    n, least = len(values), abs(values.sum()) - 1e-12 * np.abs(values).sum()
    if n == 0:
        return np.nan
    if n <= MAX_EXACT:
        signs = 1 - 2 * (np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1)  # the last one is always +
        return float((np.abs(signs @ values) >= least).mean())
    beyond = sum((np.abs(signs @ values) >= least).sum() for signs in _random_signs(n))
    return float((1 + beyond) / (1 + NUM_DRAWS))


@cache
def _random_signs(n: int) -> list[NDArray[np.int8]]:
    """Signs for comparisons of n blocks, [draws, n] in pieces: thousands of blocks would fill the memory."""
    generator = np.random.default_rng(1935)
    rows = np.diff(np.linspace(0, NUM_DRAWS, 65).astype(int))
    return [(2 * generator.integers(0, 2, (own, n)) - 1).astype(np.int8) for own in rows]


def smallest_p(n: float) -> float:
    """The smallest result of a sign-flip test, when all blocks agree."""
    return max(2.0 ** (1 - n), 1 / (1 + NUM_DRAWS)) if n else 1.0


def holm(p_values: Sequence[float]) -> Floats:
    """Holm's adjusted probabilities: claims at 5 % are all true in 95 % of studies (1979)."""
    p, adjusted = np.asarray(p_values, float), np.ones(len(p_values))
    order = np.argsort(p, kind="stable")
    adjusted[order] = np.maximum.accumulate(np.minimum(p[order] * np.arange(len(p), 0, -1), 1))
    return adjusted


def blocks_needed(num_comparisons: int) -> int:
    """The fewest blocks with which each of that many comparisons can be significant at all (M14, M21)."""
    return int(np.ceil(1 + np.log2(num_comparisons / (1 - LEVEL))))


def effect_size(logs: ArrayLike) -> Interval:
    """Mean over standard deviation of paired log ratios, with the interval of the noncentral t distribution."""
    values = np.asarray(logs, float)
    n = len(values)
    spread = float(values.std(ddof=1)) if n >= MIN_BLOCKS else 0.0
    if spread <= 1e-12 * np.abs(values).max(initial=0.0):
        return NONE
    center = float(values.mean()) / spread
    tails = np.array([(1 + LEVEL) / 2, (1 - LEVEL) / 2])
    low, high = scipy.special.nctdtrinc(n - 1, tails, center * np.sqrt(n)) / np.sqrt(n)
    return Interval(center, float(low), float(high), n, "noncentral t")


def censored_median(costs: ArrayLike) -> Interval:
    """The median of runs to a target; inf for those that missed it, which count as longer than all others.

    A mean over those that arrived would flatter whoever fails often. Not interpolated: nothing is known between the
    last run that arrived and the next.
    """
    ordered = np.sort(np.asarray(costs, float))
    n = len(ordered)
    center = float((ordered[(n - 1) // 2] + ordered[n // 2]) / 2) if n else np.inf
    if not np.isfinite(center):
        return NONE
    rank = _best_rank(n, LEVEL)
    if not rank:
        return Interval(center, n=n)
    high = float(ordered[n - rank]) if np.isfinite(ordered[n - rank]) else np.nan
    return Interval(center, float(ordered[rank - 1]), high, n, "order statistics, censored")


def share(count: int, n: int, *, level: float = LEVEL) -> Interval:
    """A share of n, with the interval of C. J. Clopper and E. S. Pearson (Biometrika 26, 1934)."""
    tail = (1 - level) / 2
    low = float(scipy.special.betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(scipy.special.betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return Interval(count / n, low, high, n, "Clopper-Pearson")


def expected_cost(costs: pd.Series, is_reached: pd.Series, *, limit: float) -> Interval:
    """What the target costs if every run that misses it is followed by another; NONE if no run arrived.

    The expected running time (ERT) of N. Hansen, A. Auger, S. Finck and R. Ros, INRIA RR-6828 (2009): with mean costs T
    of arrivals and F of the others and share p it is T + (1 - p) / p F. The interval joins those of T (t) and of p
    (Clopper-Pearson), each at half the error. `limit` is the cost at which a run is ended: what fails later may use all
    of it, launch and set-up included.
    """
    arrived, others = costs[is_reached], costs[~is_reached]
    if not len(arrived):
        return NONE
    each = float(arrived.mean())
    failed = float(others.mean()) if len(others) else each
    center = each + len(others) / len(arrived) * failed
    if len(arrived) < MIN_BLOCKS:
        return Interval(center, n=len(costs))
    inner = (1 + LEVEL) / 2
    half = half_width(len(arrived), level=inner) * float(arrived.std())
    reached = share(len(arrived), len(costs), level=inner)
    low = max(each - half, 0.0) + (1 - reached.high) / reached.high * failed
    high = each + half + (1 - reached.low) / reached.low * max(failed, limit)
    return Interval(center, low, high, len(costs), "t and Clopper-Pearson")
