"""Contrasts: the tests of all declared comparisons, and their verdicts.

Each has the ratio of throughput to the reference's from paired blocks, an exact sign-flip test, Holm's correction over
all comparisons declared together, the effect size relative to the noise of launches, and the number of blocks that a
claim needs. docs/metrics.md explains the method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import nctdtrinc

from dlscale.analysis.findings.contrast_declaration import Declaration, Declared, declare, declare_variants
from dlscale.analysis.findings.interference import why_unclaimable
from dlscale.analysis.measured import Measured
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval, block_median, block_ratio, blocks_needed
from dlscale.analysis.text import plural
from dlscale.base.errors import UsageError

MAX_EXACT = 16  # blocks
NUM_DRAWS = 2**16 - 1
_AT_ONCE = 2**12  # draws; all of them would take much memory
_SEED = 1935  # the same records, the same p


def sign_flips(comparisons: Sequence[Sequence[float]]) -> list[float]:
    """The two-sided probabilities of means of paired log ratios at least as far from 0 as the observed ones.

    Under the null hypothesis each block's log ratio has either sign with equal probability (Fisher's randomisation
    test); nothing else is assumed about the noise. Up to 16 blocks all signs are tried, so the probability is exact;
    beyond that, 65,535 random assignments and the observed one. Comparisons of as many blocks have the same random
    signs, which are drawn once. Raises ValueError for one without values.
    """
    if not all(map(len, comparisons)):
        raise ValueError("no log ratios to test")
    p_values = [0.0] * len(comparisons)
    for num_blocks in {len(logs) for logs in comparisons}:
        alike = [index for index, logs in enumerate(comparisons) if len(logs) == num_blocks]
        values = np.array([comparisons[index] for index in alike], dtype=np.float64)
        # Tolerance for rounding: equal sums count as equal.
        least = np.abs(values.sum(axis=1)) - 1e-12 * np.abs(values).sum(axis=1)
        if num_blocks <= MAX_EXACT:
            found = [
                float(np.mean(np.abs(_all_sums(own)) >= limit))
                for own, limit in zip(values, least, strict=True)
            ]
        else:
            found = ((1 + _num_beyond(values, least)) / (1 + NUM_DRAWS)).tolist()
        for index, p_value in zip(alike, found, strict=True):
            p_values[index] = p_value
    return p_values


def _num_beyond(values: NDArray[np.float64], least: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many of NUM_DRAWS random signs give sums as far from 0 as `least`, for each row of `values`."""
    random, count = np.random.default_rng(_SEED), np.zeros(len(values), dtype=np.int64)
    for first in range(0, NUM_DRAWS, _AT_ONCE):
        shape = (min(_AT_ONCE, NUM_DRAWS - first), values.shape[1])
        signs = 2.0 * random.integers(0, 2, shape) - 1
        count += (np.abs(signs @ values.T) >= least).sum(axis=0)
    return count


def smallest_p(num_blocks: int) -> float:
    """The smallest result of `sign_flips`, when all blocks agree."""
    return max(2.0 ** (1 - num_blocks), 1 / (1 + NUM_DRAWS)) if num_blocks else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted probabilities, in the same order.

    Claiming those that are at most 5 % gives any false claim in at most 5 % of studies, however the tests depend on
    each other (Holm 1979).
    """
    adjusted = [0.0] * len(p_values)
    worst = 0.0
    for done, index in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        worst = max(worst, min(1.0, (len(p_values) - done) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def _all_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sums over all signs of the values but the first, which by symmetry stays fixed, [2^(n - 1)]."""
    sums = values[:1]
    for value in values[1:]:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def standardised(logs: Sequence[float], *, level: float = LEVEL) -> Interval | None:
    """Mean over standard deviation of paired log ratios (Cohen's d of paired values), with its exact interval.

    The interval is that of the noncentral t distribution, exact for normal log ratios. With few blocks it is wide: an
    observed 2 is 0.5 to 3.4 by 6 blocks. The centre is biased away from 0, by 19 % at 6 blocks and 9 % at 10. The size
    says how consistent a difference is, not whether it matters; for that see the ratio. None for fewer than 3 blocks,
    or if all log ratios are equal.
    """
    values = np.asarray(logs, dtype=np.float64)
    n = len(values)
    spread = float(values.std(ddof=1)) if n >= MIN_BLOCKS else 0.0
    if spread <= 1e-12 * float(np.abs(values).max(initial=0.0)):
        return None
    center = float(values.mean()) / spread
    statistic = center * math.sqrt(n)
    ends = [
        float(nctdtrinc(n - 1, probability, statistic)) / math.sqrt(n)
        for probability in ((1 + level) / 2, (1 - level) / 2)
    ]
    low, high = ends if all(map(math.isfinite, ends)) else (None, None)
    return Interval(center=center, low=low, high=high, level=level, method="noncentral t", n=n)


CONTRAST_BAND = 0.02  # of throughput: a smaller difference does not matter in practice
CONTRAST_ALPHA = 1 - LEVEL

Verdict = Literal["faster", "slower", "alike", "not shown", "cannot be shown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast(Declared):
    """A contender versus its reference. `ratio` is of their throughputs: above 1 the contender is faster."""

    num_blocks: int  # that both have
    ratio: Interval | None  # None if one of them gave no number
    median_ratio: float | None  # of the blocks; `ratio` is of geometric means
    standardised: Interval | None  # mean log ratio over its standard deviation between blocks
    p_value: float | None  # of the sign-flip test; None without a common block
    p_adjusted: float | None  # Holm's, over all declared comparisons
    verdict: Verdict
    reason: str  # of "cannot be shown"; else empty
    too_few: bool  # whether only more blocks are missing for a verdict
    factor: str  # of all comparisons declared together
    blocks_needed: int  # the fewest with which any of them can be claimed


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrasts:
    """All comparisons declared together."""

    factor: str
    blocks_needed: int
    found: tuple[Contrast, ...]
    left_out: tuple[str, ...]

    @property
    def shown(self) -> bool:
        """Whether at least one comparison has a verdict other than "cannot be shown"."""
        return any(contrast.verdict != "cannot be shown" for contrast in self.found)


def contrasts(
    declaration: Declaration,
    *,
    unclaimable: str = "",
) -> Contrasts:
    """Test all declared comparisons.

    `unclaimable` is why the whole study claims nothing; its ratios are given. A pair without a number still counts
    in the correction: a failed backend makes no other claim easier.
    """
    pairs = declaration.pairs
    logs = [_log_ratios(pair) for pair in pairs]
    flips = iter(sign_flips([ratios for ratios in logs if ratios]))
    p_values = [next(flips) if ratios else None for ratios in logs]
    adjusted = holm([1.0 if p_value is None else p_value for p_value in p_values])
    reachable = holm([smallest_p(len(ratios)) for ratios in logs])
    needed = blocks_needed(len(pairs))
    tested = []
    for pair, ratios, p_value, p_adjusted, least in zip(
        pairs, logs, p_values, adjusted, reachable, strict=True
    ):
        over, under = pair.contender.rates, pair.reference.rates
        ratio = block_ratio(over, under) if over and under else None
        why_none = pair.why_none or unclaimable
        verdict: Verdict = "cannot be shown" if why_none else _judge(ratio, p_adjusted, least)
        too_few = verdict == "cannot be shown" and not why_none
        tested.append(
            Contrast(
                contender=pair.contender,
                reference=pair.reference,
                num_blocks=len(ratios),
                ratio=ratio,
                median_ratio=block_median(over, under) if ratio else None,
                standardised=standardised(ratios),
                p_value=p_value,
                p_adjusted=None if p_value is None else p_adjusted,
                verdict=verdict,
                reason=undecided_text(len(ratios), len(pairs), needed) if too_few else why_none,
                too_few=too_few,
                factor=declaration.factor,
                blocks_needed=needed,
            )
        )
    return Contrasts(
        factor=declaration.factor, blocks_needed=needed, found=tuple(tested), left_out=declaration.left_out
    )


def study_contrasts(study: Measured) -> Contrasts | None:
    """The contrasts that are declared of a study by default; None if there are no two values to compare."""
    try:
        return declared_contrasts(study)
    except UsageError:  # nothing to compare, which is no error in a report
        return None


def declared_contrasts(
    study: Measured,
    *,
    factor: str | None = None,
    reference: str | None = None,
    ranks: Sequence[int] = (),
    backends: Sequence[str] = (),
) -> Contrasts:
    """Each value of a factor versus one reference, by default what the study's variants declare, if it has any.

    Else the factor is the backend, or the framework if there is only one backend, and the reference the first of the
    study's order. Raises UsageError if there is nothing to compare.
    """
    given: dict[str, Any] = {"order": study.order, "ranks": ranks, "backends": backends}
    if study.variants and not (factor or reference):
        declaration = declare_variants(study.launches, study.variants, **given)
    else:
        declaration = declare(study.launches, factor=factor, reference=reference, **given)
    return contrasts(
        declaration,
        unclaimable=why_unclaimable(study),
    )


def within_band(ratio: Interval) -> bool:
    """Whether the two are certainly alike; symmetric for a ratio and its inverse."""
    if ratio.low is None or ratio.high is None:
        return False
    return ratio.low > 1 / (1 + CONTRAST_BAND) and ratio.high < 1 + CONTRAST_BAND


def _judge(ratio: Interval | None, p_adjusted: float, reachable: float) -> Verdict:
    """The first verdict that holds: alike, faster or slower, too few blocks, not shown.

    `reachable` is the smallest adjusted probability that so many blocks can have.
    """
    if ratio and within_band(ratio):
        return "alike"
    if ratio and ratio.low is not None and ratio.high is not None and p_adjusted <= CONTRAST_ALPHA:
        if ratio.low > 1:
            return "faster"
        if ratio.high < 1:
            return "slower"
    return "not shown" if reachable <= CONTRAST_ALPHA else "cannot be shown"


def undecided_text(num_blocks: int, num_declared: int, needed: int) -> str:
    """Why so few blocks can show nothing, and what can: `6 launches cannot decide 2 comparisons: --launches 7 can`."""
    return f"{plural(num_blocks, 'launch')} cannot decide {plural(num_declared, 'comparison')}: --launches {needed} can"


def _log_ratios(pair: Declared) -> list[float]:
    over, under = pair.contender.rates, pair.reference.rates
    return [math.log(over[block] / under[block]) for block in pair.common]
