"""Intervals for a median and for a ratio over launches, each with its method and its n.

The unit is the launch: the windows of a launch are correlated and would make intervals too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
MIN_BLOCKS = 3  # for a t interval; with two it would be 12.7 standard errors wide, which says nothing
MIN_ORDERED = 6  # for an interval between order statistics at LEVEL
TWO_GROUPS = 9.7  # + n: twice the log likelihood ratio that a fifth of n normal values exceeds
ROUNDING = 1e-9  # of logarithms and shares; values that differ by less are equal
INSUFFICIENT = "insufficient data"


def median(values: Floats, *, keepdims: bool = False) -> Floats:
    """`np.median` along the last axis, in a fifth of its time for short rows; NaN where a value is NaN."""
    ordered, count = np.sort(values, axis=-1), values.shape[-1]
    middle = (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2
    middle = np.where(np.isnan(ordered[..., -1]), np.nan, middle)
    return middle[..., np.newaxis] if keepdims else middle


def medians(rows: Sequence[Floats]) -> list[float]:
    """The median of each row, those of one length at once; NaN of an empty one."""
    found = [math.nan] * len(rows)
    alike: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        alike.setdefault(len(row), []).append(index)
    for length, places in alike.items():
        values = median(np.stack([rows[index] for index in places])) if length else ()
        for index, value in zip(places, values, strict=False):
            found[index] = float(value)
    return found


def blocks_needed(num_comparisons: int) -> int:
    """The fewest paired blocks with which each of that many comparisons can be significant at all.

    With n blocks the smallest two-sided probability of a paired test is 2^(1-n), when all n agree (M14, M21). It must
    be at most 5 % divided by the number of comparisons (Bonferroni, the same as Holm's first step).
    """
    return math.ceil(1 + math.log2(num_comparisons / (1 - LEVEL)))


def t_quantile(freedom: float, probability: float) -> float:
    """That quantile of Student's t with so many degrees of freedom."""
    # Here, because SciPy takes longer to import than a prediction, which needs no t, takes.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def half_width(num_blocks: int, *, level: float = LEVEL) -> float:
    """Half the interval of a mean over blocks, in standard deviations between blocks; inf below 2 blocks."""
    if num_blocks < 2:
        return math.inf
    return t_quantile(num_blocks - 1, (1 + level) / 2) / math.sqrt(num_blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and its limits at confidence `level`; no limits if there were too few values."""

    center: float
    low: float | None
    high: float | None
    level: float
    method: str
    n: int  # launches, or blocks for a ratio

    def rate(self, amount: float) -> Interval:
        """`amount` over this cost, as a rate; the limits are swapped."""
        return self.mapped(lambda value: amount / value, falls=True)

    def complement(self) -> Interval:
        """1 minus this share; the limits are swapped."""
        return self.mapped(lambda value: 1 - value, falls=True)

    def times(self, factor: float) -> Interval:
        """The interval multiplied by a positive factor, for example to change its unit."""
        return self.mapped(lambda value: value * factor)

    def excess(self) -> Interval:
        """This ratio minus 1."""
        return self.mapped(lambda value: value - 1)

    def mapped(self, change: Callable[[float], float], *, falls: bool = False) -> Interval:
        """The interval of what `change` makes of the value; limits that are swapped where it `falls`."""
        low, high = (None if end is None else change(end) for end in (self.low, self.high))
        return replace(
            self, center=change(self.center), low=high if falls else low, high=low if falls else high
        )


@cache
def median_coverage(num_values: int, rank: int) -> float:
    """Probability that the median lies between the `rank`-th smallest and the `rank`-th largest of n values.

    It holds for any continuous distribution: the interval misses the median if fewer than `rank` values fall on one
    side of it, and each value falls on either side like a fair coin. Rank 1 gives 1 - 2^(1 - n).
    """
    tail: float = sum(math.comb(num_values, below) for below in range(rank)) / 2**num_values
    return 1.0 - 2.0 * tail


def median_interval(values: Sequence[float], *, level: float = LEVEL) -> Interval:
    """The median and its symmetric interval between order statistics, of confidence `level`.

    Pairs of order statistics have exact, distribution-free coverage, but at few levels: with 8 values 99.2 and 93.0 %
    and nothing between. So the limits are interpolated from the narrowest pair that covers enough towards the next
    inner pair, in proportion to the excess coverage. For normal, skewed, heavy-tailed, uniform and outlying noise the
    result still covers more than `level`; the interpolation of Hettmansperger and Sheather (1986) is narrower and falls
    short by up to one percentage point. The worst case is 8 values in two clusters of equal size: 93 % instead of 95 %
    (tests/analysis/coverage).

    95 % needs 6 values: five cover with 93.75 % at most.
    """
    ordered = sorted(values)
    n = len(ordered)
    if n == 0:
        raise ValueError("no values to take a median of")
    ranks = [rank for rank in range(1, n // 2 + 1) if median_coverage(n, rank) >= level]
    if not ranks:
        return Interval(
            center=float(np.median(ordered)), low=None, high=None, level=level, method=INSUFFICIENT, n=n
        )
    rank = ranks[-1]
    low, high = ordered[rank - 1], ordered[n - rank]
    inwards = _share_inwards(n, rank, level)
    low += inwards * (ordered[rank] - low)
    high += inwards * (ordered[n - rank - 1] - high)
    return Interval(
        center=float(np.median(ordered)),
        low=low,
        high=high,
        level=level,
        method="interpolated order statistics",
        n=n,
    )


def _share_inwards(num_values: int, rank: int, level: float) -> float:
    """How far a limit of that level lies from the `rank`-th value towards the next one, 0 to 1.

    The innermost pair of an even number has none within: its limits move towards each other and meet at level 0, for
    the pair crossed covers as much with the sign reversed.
    """
    outer, inner = median_coverage(num_values, rank), median_coverage(num_values, rank + 1)
    return (outer - level) / (outer - inner)


B = TypeVar("B", bound=Hashable)  # names a block


def block_ratio(
    numerator: Mapping[B, float], denominator: Mapping[B, float], *, level: float = LEVEL
) -> Interval:
    """Numerator over denominator, both given as block -> positive value, with a t interval on the log ratios.

    It is an interval of the ratio of typical launches. Launches of one block ran close in time, so drift (clocks,
    neighbours, temperature) cancels in each block's ratio. The centre is the exponential of the mean log ratio, which
    equals the ratio of the two geometric means; the t interval is that of the same mean. Each log ratio is the
    difference of two launches' noise and so nearly symmetric even if the noise is skewed: from 3 blocks on the interval
    holds its level for skewed, heavy-tailed and outlying noise, and is narrower than order statistics, which would need
    6 blocks. If only one of the two has skewed noise it covers less, 89 % for exponential noise; if launches of one
    side are now and then held up, it covers the ratio of medians but not that of geometric means, and `block_median` is
    shown where the two disagree. If a neighbour slows one side a third of the time, blocks fall in two groups, and the
    interval is that of order statistics, too (`t_interval`). tests/analysis/test_coverage.py simulates this.

    Without a common block it is the difference of the mean logs with Welch's interval, labelled "unpaired".
    """
    _check_positive(numerator, denominator)
    if not numerator or not denominator:
        raise ValueError(f"no ratio of {len(numerator)} values over {len(denominator)}")
    common = [block for block in numerator if block in denominator]
    if common:
        groups = [np.log([numerator[block] / denominator[block] for block in common])]
    else:
        groups = [np.log(list(numerator.values())), -np.log(list(denominator.values()))]
    return ratio_of(groups, level=level)


def ratio_of(groups: Sequence[Floats], *, chained: bool = False, level: float = LEVEL) -> Interval:
    """The exponential of the sum of the groups' means, with its t interval; groups are independent log ratios."""
    logs = t_interval(sum(float(group.mean()) for group in groups), groups, level=level)
    return replace(logs.mapped(math.exp), method=chained_method(logs.method) if chained else logs.method)


def chained_method(method: str) -> str:
    """The method of several groups that are paired each, which `t_interval` calls unpaired."""
    return method.replace("unpaired", "chained")


def chained_ratio(steps: Sequence[Mapping[B, float]], *, level: float = LEVEL) -> Interval:
    """The first over the last, both given as block -> positive value, by way of those between.

    Where the two have no common block, but each has some with a link between them, the log ratio is the sum of two
    paired ones, of different launches: drift cancels in each, and the interval is that of the sum of their independent
    means (Welch-Satterthwaite), labelled "chained". Each link adds its own noise once per side. Without a link it is
    `block_ratio`.
    """
    if len(steps) == 2:
        return block_ratio(steps[0], steps[1], level=level)
    groups = []
    for over, under in pairwise(steps):
        _check_positive(over, under)
        groups.append(np.log([over[block] / under[block] for block in over if block in under]))
    return ratio_of(groups, chained=True, level=level)


MAX_APART = 0.01  # between the two centres of a ratio, without a word


def block_median(numerator: Mapping[B, float], denominator: Mapping[B, float]) -> float:
    """The median over common blocks of numerator over denominator; without a common block the ratio of medians."""
    common = [block for block in numerator if block in denominator]
    if common:
        return float(np.median([numerator[block] / denominator[block] for block in common]))
    return float(np.median(list(numerator.values())) / np.median(list(denominator.values())))


def chained_median(steps: Sequence[Mapping[B, float]]) -> float:
    """`block_median` of the first over the last by way of those between: the product of the steps' medians."""
    return math.prod(block_median(over, under) for over, under in pairwise(steps))


def disagree(ratio: Interval, median: float) -> bool:
    """Whether a median ratio differs from the ratio of geometric means by more than 1 % and half of the half-interval.

    Two held-up launches of one side do that in 72 to 94 % of studies of 6 to 10 launches, equal launches hardly ever,
    or in up to 6 % where they spread by 5 %.
    """
    if abs(median / ratio.center - 1) <= MAX_APART or ratio.low is None or ratio.high is None:
        return False
    limit = ratio.high if median > ratio.center else ratio.low
    return abs(median - ratio.center) > abs(limit - ratio.center) / 2


def block_difference(
    first: Mapping[B, float], second: Mapping[B, float], base: Mapping[B, float], *, level: float = LEVEL
) -> Interval:
    """(first - second) / base over the blocks that all three have, given as block -> positive value.

    The centre is the difference of two ratios to `base`, each of geometric means, as in `block_ratio`. The
    interval is the t interval of its terms by block, to first order: log(first / base) and
    log(second / base), weighted by the two ratios. So drift from block to block cancels, noise in `base`
    counts only in proportion to the small difference, and an outlying launch weighs less than in a mean of quotients.
    It covers like `block_ratio`'s (tests/analysis/test_coverage.py). Raises ValueError without a common block.
    """
    _check_positive(first, second, base)
    common = [block for block in first if block in second and block in base]
    if not common:
        raise ValueError(f"no common block of {len(first)}, {len(second)} and {len(base)} values")
    logs = np.log([[values[block] / base[block] for block in common] for values in (first, second)])
    over, under = np.exp(logs.mean(axis=1))
    return t_interval(float(over - under), [over * logs[0] - under * logs[1]], level=level)


def _check_positive(*groups: Mapping[B, float]) -> None:
    for value in (value for group in groups for value in group.values()):
        if not 0 < value < math.inf:
            raise ValueError(f"a ratio needs positive finite values, got {value}")


def t_interval(center: float, groups: Sequence[Floats], *, level: float) -> Interval:
    """A t interval around `center`, from the standard error of the mean of each independent group.

    One group is paired values; two are Welch's interval, labelled "unpaired". Where the values of a group fall in two
    groups of their own, no limit is nearer than order statistics have it, and the label says so.
    """
    n, unpaired = min(map(len, groups)), len(groups) > 1
    if n < MIN_BLOCKS:
        method = f"{INSUFFICIENT}, unpaired" if unpaired else INSUFFICIENT
        return Interval(center=center, low=None, high=None, level=level, method=method, n=n)
    variances = [float(group.var(ddof=1)) / len(group) for group in groups]
    spread = sum(variance**2 / (len(group) - 1) for variance, group in zip(variances, groups, strict=True))
    freedom = sum(variances) ** 2 / spread if spread else math.inf  # Welch-Satterthwaite; n - 1 for one group
    below = above = t_quantile(freedom, (1 + level) / 2) * math.sqrt(sum(variances))
    method = "unpaired t" if unpaired else "paired t"
    if any(map(in_two_groups, groups)):
        method = f"{method} with order statistics"
        distances = np.array([_distances(group, level) for group in groups])
        below, above = np.maximum([below, above], np.sqrt((distances**2).sum(axis=0))).tolist()
    return Interval(center=center, low=center - below, high=center + above, level=level, method=method, n=n)


def in_two_groups(values: Floats) -> bool:
    """Whether values are likelier of two normal groups, of two values or more each, than of one.

    So are a fifth of studies with normal noise. Where a neighbour shifts values a third of the time, by 5 to 40 %, a
    t interval holds the group of most launches in 40 to 95 % of studies, for now and then a study has few of those;
    with order statistics it is 93 to 98 %, and for normal noise it is 4 to 11 % wider (test_coverage.py).
    Below 6 values there are no order statistics (docs/metrics.md).
    """
    n = len(values)
    if n < MIN_ORDERED:
        return False
    centred = np.sort(values) - values.mean()
    spread = float((centred**2).mean())
    if spread < ROUNDING**2:
        return False
    below = np.arange(2, n - 1)  # how many are in the lower group
    above = n - below
    sums, squares = np.cumsum(centred)[below - 1], np.cumsum(centred**2)[below - 1]
    lower = (squares - sums**2 / below) / below
    upper = (n * spread - squares - sums**2 / above) / above
    # Logarithms of variances over that of all values: minus twice that of the ratio of likelihoods.
    likelihoods = below * np.log(lower / spread + ROUNDING) + above * np.log(upper / spread + ROUNDING)
    return bool(-likelihoods.min() > n + TWO_GROUPS)


def _distances(values: Floats, level: float) -> tuple[float, float]:
    """How far the limits of a mean are below and above it: by t, and by order statistics for two groups.

    Of independent groups the squares of such distances add up (G. Y. Zou and A. Donner, Statist. Med. 27, 2008). Where
    a level needs more values than there are, the smallest and the largest stand for it.
    """
    mean = float(values.mean())
    half = half_width(len(values), level=level) * float(values.std(ddof=1))
    if not in_two_groups(values):
        return half, half
    ordered = median_interval(values.tolist(), level=level)
    low = float(values.min()) if ordered.low is None else ordered.low
    high = float(values.max()) if ordered.high is None else ordered.high
    return max(half, mean - low), max(half, high - mean)
