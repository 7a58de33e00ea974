"""The tests of all declared comparisons, and what each of them shows.

Throughput over the reference's, from paired blocks; an exact sign-flip test; Holm's correction over all that were
declared together; and how many blocks it takes for any of it. docs/contrasts.md has the whole story.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass
from typing import Literal

from dlscale.analysis.contrasts.declare import Declaration, Declared, Rates, Side
from dlscale.analysis.contrasts.effect import standardised
from dlscale.analysis.contrasts.significance import holm, sign_flip, smallest_p
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval, block_ratio
from dlscale.benchmarks.precision import blocks_needed

BAND = 0.02  # of throughput: a difference within is none that anybody would change anything for
ALPHA = 1 - LEVEL

Verdict = Literal["faster", "slower", "alike", "not shown", "cannot be shown"]
Flagged = Mapping[
    tuple[str, str], Set[Hashable]
]  # (cell, kind of evidence) -> blocks of its outlying launches


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A contender beside its reference. `ratio` is of their throughputs: above 1 the contender is faster."""

    contender: Side
    reference: Side
    num_blocks: int  # that both have
    ratio: Interval | None  # None if one of them gave no number, or they may not be compared
    without: Interval | None  # the same without blocks that hold an outlying launch; None if there is none
    standardised: Interval | None  # mean log ratio over its standard deviation between blocks
    p_value: float | None  # of the sign-flip test; None without a block in common
    p_adjusted: float | None  # Holm's, over all that were declared
    verdict: Verdict
    reason: str  # of "cannot be shown"; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrasts:
    """All that were declared together. `blocks_needed` is the fewest by which so many can be claimed at all."""

    factor: str
    blocks_needed: int
    found: tuple[Contrast, ...]
    left_out: tuple[str, ...]

    @property
    def shown(self) -> bool:
        """Whether the data can tell anything of at least one of them."""
        return any(one.verdict != "cannot be shown" for one in self.found)


def contrasts(
    declaration: Declaration,
    *,
    flagged: Flagged | None = None,
    forbidden: Callable[[Declared], str] | None = None,
) -> Contrasts:
    """Test them all. `flagged` are launches that stand out; they count, and the ratio without them is told beside.

    `forbidden` says why two may not be compared at all, as frameworks whose networks differ; empty if they may. A pair
    without a number counts as declared: a backend that fails makes no other one's claim easier.
    """
    pairs, flagged = declaration.pairs, flagged or {}
    reasons = [forbidden(pair) if forbidden else "" for pair in pairs]
    logs = [[] if reason else _log_ratios(pair) for pair, reason in zip(pairs, reasons, strict=True)]
    p_values = [sign_flip(one) if one else None for one in logs]
    adjusted = holm([1.0 if one is None else one for one in p_values])
    reachable = holm([smallest_p(len(one)) for one in logs])
    needed = blocks_needed(len(pairs))
    found = []
    for index, pair in enumerate(pairs):
        ratio = None if reasons[index] else _ratio(pair)
        verdict, reason = _judge(
            ratio,
            p_adjusted=adjusted[index],
            can_be_shown=reachable[index] <= ALPHA,
            why_none=reasons[index] or _why_none(pair),
            needed=needed,
            num_declared=len(pairs),
        )
        found.append(
            Contrast(
                contender=pair.contender,
                reference=pair.reference,
                num_blocks=len(logs[index]),
                ratio=ratio,
                without=None if ratio is None else _without(pair, flagged),
                standardised=standardised(logs[index]),
                p_value=p_values[index],
                p_adjusted=None if p_values[index] is None else adjusted[index],
                verdict=verdict,
                reason=reason,
            )
        )
    return Contrasts(
        factor=declaration.factor, blocks_needed=needed, found=tuple(found), left_out=declaration.left_out
    )


def within_band(ratio: Interval) -> bool:
    """Whether it is alike for certain: the same for a ratio and its inverse."""
    if ratio.low is None or ratio.high is None:
        return False
    return ratio.low > 1 / (1 + BAND) and ratio.high < 1 + BAND


def _judge(
    ratio: Interval | None,
    *,
    p_adjusted: float,
    can_be_shown: bool,
    why_none: str,
    needed: int,
    num_declared: int,
) -> tuple[Verdict, str]:
    """The first that holds: no pair, alike, faster or slower, too few blocks, not shown."""
    if ratio is None or why_none:
        return "cannot be shown", why_none
    if within_band(ratio):
        return "alike", ""
    if ratio.low is not None and ratio.high is not None and p_adjusted <= ALPHA:
        if ratio.low > 1:
            return "faster", ""
        if ratio.high < 1:
            return "slower", ""
    if not can_be_shown:
        what = f"{num_declared} comparisons need" if num_declared > 1 else "a comparison needs"
        carried = math.floor(ALPHA / smallest_p(ratio.n) + 1e-9)
        there = f"{ratio.n} of them carry {carried or 'none'}"
        return "cannot be shown", f"{what} {needed} blocks or more; {there}"
    return "not shown", ""


def _log_ratios(pair: Declared) -> list[float]:
    over, under = pair.contender.rates, pair.reference.rates
    return [math.log(over[block] / under[block]) for block in over if block in under]


def _ratio(pair: Declared) -> Interval | None:
    over, under = pair.contender.rates, pair.reference.rates
    return block_ratio(over, under) if over and under else None


def _without(pair: Declared, flagged: Flagged) -> Interval | None:
    """Of the blocks in which neither has a launch that stands out; None where that are all, or too few."""
    sides = (pair.contender, pair.reference)
    left_out = set().union(*(flagged.get((side.cell.id, side.evidence), set()) for side in sides))
    common = pair.contender.rates.keys() & pair.reference.rates.keys()
    if not common & left_out or len(common - left_out) < MIN_BLOCKS:
        return None

    def kept(rates: Rates) -> dict[Hashable, float]:
        return {block: rate for block, rate in rates.items() if block in common - left_out}

    return block_ratio(kept(pair.contender.rates), kept(pair.reference.rates))


def _why_none(pair: Declared) -> str:
    """Why there is no paired test at all; empty if there is one."""
    for side in (pair.contender, pair.reference):
        if not side.rates:
            return f"every launch of {side.name} failed"
    if not pair.contender.rates.keys() & pair.reference.rates.keys():
        return "no block in common, so what changed on the machine between their launches is in the ratio"
    return ""
