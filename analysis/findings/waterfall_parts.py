"""The parts of a waterfall: those that the measured controls separate, and their intervals.

Levels form a staircase, in seconds per step; every part is the height of one stair, so the parts add up to the loss:

    ideal      1 rank of `none`, per sample, times the local batch of N ranks
      | batch effect            the local batch is smaller than the base case's (strong scaling only)
    alone      1 rank of `none` at the local batch of N ranks
      | co-running              N ranks share memory, caches and power, and compute more slowly
      | input stall             N ranks wait longer for their samples than 1 rank does
    mean       N ranks of `none`: the average rank's step
      | stragglers              every step has a latest rank, and all others wait for it
    latest     N ranks of `none`: mean over steps of the latest rank's
      | exposed communication   the rest
    measured   N ranks over the backend

Late ranks and the input stall both occur in `none` on N ranks, where no rank waits for another. They are separated at
the average rank's step, so that no time counts twice:

    rank 0  |---- computes ----|~ input ~|                         below the line: what the average rank does,
    rank 1  |------- computes -------|~~~~~ input ~~~~~|           computing (co-running) and fetching (input stall);
    rank 2  |---- computes ----|~~ input ~~|                       beyond it: stragglers, whatever made them late
                                          mean        latest

Below the line, training on resident tensors, which fetches nothing, separates computing from fetching. The base case
reads data, too, and its input stall is part of the ideal step. So only the increase is lost by scaling:

    input stall  = (mean - resident) of N ranks  -  (ideal - resident) of 1 rank, at the same local batch
    co-running   = resident of N ranks  -  resident of 1 rank, at the same local batch

`efficiency.input_stall` is the whole stall, as a share of a step. If the control of a stair was not measured, its part
is not guessed but merged with the next one, under both names.

Nobody waits for samples longer than fetching them takes. So where fetching alone was measured (control `loader`), the
input stall lies between minus what 1 rank and plus what N ranks need for it (`InputBound`), whatever noise the
difference of four levels has; what it loses or gains by that is co-running's, and the sum of the two stays.

`Levels` are the heights that a cell's controls measured, block by block, from which the interval of a part is
estimated; `waterfall_controls` finds the launches that are these controls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dlscale.analysis.records import Seconds
from dlscale.analysis.statistics import (
    LEVEL,
    Interval,
    chained_method,
    ratio_of,
    t_interval,
)

BATCH, CO_RUNNING, INPUT = "batch effect", "co-running", "input stall"
STRAGGLERS, EXPOSED = "stragglers", "exposed communication"
NAMES = (BATCH, CO_RUNNING, INPUT, STRAGGLERS, EXPOSED)  # in the order of the staircase

# "..._resident" is the same level on tensors in memory; "resident" is that of N ranks. "link" is no level of the
# staircase: the training through which the base case of another job is reached. Seconds per step.
Level = Literal[
    "ideal", "ideal_resident", "alone", "alone_resident", "resident", "mean", "latest", "measured", "link"
]
Terms = dict[Level, int]  # a sum of levels, each with its factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Stair:
    """A part of the loss, or several that the controls do not separate, as a sum of measured levels."""

    names: tuple[str, ...]
    terms: Terms

    @property
    def name(self) -> str:
        """`co-running`, or `batch effect, co-running and input stall`."""
        return " and ".join(filter(None, (", ".join(self.names[:-1]), self.names[-1])))


def staircase(known: Set[Level], *, strong: bool, reads: bool, together: bool) -> tuple[Stair, ...]:
    """The parts that the known levels allow, from ideal to measured; ideal, mean and measured are always known.

    `strong` scaling changes the local batch; a study that does not read data has no input stall; ranks that do not
    step `together` do not wait for each other. The terms add up to measured - ideal.
    """
    landings: list[tuple[str, Terms | None]] = []
    if strong:
        landings.append((BATCH, _after_batch(known, reads=reads)))
    if reads:
        # With a control of the batch but not of its input, the input stall may be in either of two stairs.
        apart = _input_known(known) and (not strong or "alone" not in known or _resident_known(known))
        resident: Terms | None = {"ideal": 1, "ideal_resident": -1, "resident": 1} if apart else None
        landings += [(CO_RUNNING, resident), (INPUT, {"mean": 1})]
    else:
        landings.append((CO_RUNNING, {"mean": 1}))
    landings.append((STRAGGLERS, {"latest": 1} if together and "latest" in known else None))
    landings.append((EXPOSED, {"measured": 1}))
    return _between(landings)


def _after_batch(known: Set[Level], *, reads: bool) -> Terms | None:
    if "alone" not in known:
        return None
    if reads and _resident_known(known) and _input_known(known):
        return {"ideal": 1, "ideal_resident": -1, "alone_resident": 1}
    return {"alone": 1}


def _input_known(known: Set[Level]) -> bool:
    return {"ideal_resident", "resident"} <= known


def _resident_known(known: Set[Level]) -> bool:
    return "alone_resident" in known


def _between(landings: list[tuple[str, Terms | None]]) -> tuple[Stair, ...]:
    """A stair from each known landing to the next known one."""
    stairs: list[Stair] = []
    names: list[str] = []
    below: Terms = {"ideal": 1}
    for name, landing in landings:
        names.append(name)
        if landing is not None:
            stairs.append(Stair(names=tuple(names), terms=difference(landing, below)))
            names, below = [], landing
    return tuple(stairs)


def difference(over: Terms, under: Terms) -> Terms:
    """One sum of levels minus another."""
    factors = {level: over.get(level, 0) - under.get(level, 0) for level in (*over, *under)}
    return {level: factor for level, factor in factors.items() if factor}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputBound:
    """The limits of the input stall as shares of the measured step: fetching alone on 1 rank, negative, and on N.

    Both are the outer ends of 95 % intervals; `low` is -inf if fetching was not measured on 1 rank.
    """

    low: float
    high: float

    def clip(self, share: float) -> float:
        """The nearest share within the limits."""
        return min(max(share, self.low), self.high)


INPUT_TERMS: Terms = {"mean": 1, "ideal": -1, "ideal_resident": 1, "resident": -1}  # of a stair of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Seconds per step of each level, block by block.

    `near`: the levels in the blocks of level "measured". `far`: the base case's levels in other blocks, if it shares no
    block with "measured"; else empty. If `near` has level "link", far levels are relative to the other end of a chain
    of trainings that begins with it, and `between` has the log ratios of its further steps. `bound`: that of the input
    stall, if fetching alone was measured.
    """

    near: Mapping[Level, Seconds]
    far: Mapping[Level, Seconds]
    between: tuple[Seconds, ...] = ()
    bound: InputBound | None = None

    @property
    def known(self) -> frozenset[Level]:
        """The levels of the staircase that have values."""
        return frozenset((*self.near, *self.far)) - {"link"}

    @property
    def chained(self) -> bool:
        """Whether far levels are paired by way of a link."""
        return "link" in self.near and bool(self.far)

    def typical(self, level: Level) -> float:
        """The geometric mean over blocks, seconds."""
        if level in self.near:
            return float(np.exp(np.log(self.near[level]).mean()))
        start = self.typical("link") if self.chained else 1.0
        groups = (*self.between, np.log(self.far[level]))
        return start * math.exp(math.fsum(float(group.mean()) for group in groups))

    def efficiency(self) -> Interval:
        """Ideal over measured seconds per step, as in the table: paired by block, chained, or unpaired."""
        measured = self.near["measured"]
        if not self.far:
            return ratio_of([np.log(self.near["ideal"] / measured)])
        ideal = np.log(self.far["ideal"])
        if not self.chained:
            return ratio_of([ideal, -np.log(measured)])
        return ratio_of([np.log(self.near["link"] / measured), *self.between, ideal], chained=True)

    def by_block(self, terms: Terms) -> Seconds:
        """The sum in each block, as a share of the measured step. Raises KeyError if a level is far."""
        total = sum(factor * self.near[level] for level, factor in terms.items())
        return np.asarray(total / self.near["measured"], np.float64)

    def share(self, terms: Terms, *, level: float = LEVEL) -> Interval:
        """The sum as a share of the measured step.

        The centre is the sum of the levels' ratios to the measured step, each of geometric means, as in
        `statistics.block_ratio`; so centres add up as the terms do. The interval is the t interval of its terms by
        block, to first order (`statistics.block_difference` is the case of two terms): drift from block to block
        cancels. With far levels it is that of a chain, or Welch's, labelled unpaired.
        """
        weights = {
            name: factor * self.typical(name) / self.typical("measured") for name, factor in terms.items()
        }
        center = math.fsum(weights.values())
        measured = np.log(self.near["measured"])
        near = {name: np.log(values) - measured for name, values in self.near.items()}
        far = {name: np.log(values) for name, values in self.far.items()}
        elsewhere = near["link"] if self.chained else -measured
        sums = [sum(weight * near.get(name, elsewhere) for name, weight in weights.items())]
        distant = {name: weight for name, weight in weights.items() if name in far}
        if distant:
            sums += [sum(distant.values()) * steps for steps in self.between]
            sums.append(sum(weight * far[name] for name, weight in distant.items()))
        groups = [np.asarray(logs, np.float64) for logs in sums]
        share = t_interval(center, groups, level=level)
        return replace(share, method=chained_method(share.method)) if self.chained and distant else share

    def bounded_share(self, terms: Terms, *, level: float = LEVEL) -> Interval:
        """`share` of a sum of parts, with the input stall in it kept within its bound.

        The sum holds the stall -f times if it holds level "resident" f times. Without the stall it is a sum of other
        levels, to which the bound adds its limits: where that is narrower than the sum's own interval, or the stall
        was measured outside of its bound, it counts.
        """
        own, bound = self.share(terms, level=level), self.bound
        times = -terms.get("resident", 0)
        if bound is None or not times or not self.known.issuperset(INPUT_TERMS):
            return own
        stall = self.share(INPUT_TERMS, level=level)
        rest_terms = difference(terms, {name: times * factor for name, factor in INPUT_TERMS.items()})
        if not rest_terms:
            return _clipped(stall, bound)
        rest = self.share(rest_terms, level=level)
        center = rest.center + times * bound.clip(stall.center)
        if own.low is None or own.high is None or rest.low is None or rest.high is None:
            return replace(own, center=center)
        ends = sorted((times * bound.low, times * bound.high))
        low, high = max(own.low, rest.low + ends[0]), min(own.high, rest.high + ends[1])
        if not low <= center <= high:  # the stall is outside of its bound for certain
            low, high = min(center, rest.low + ends[0]), max(center, rest.high + ends[1])
        return replace(own, center=center, low=low, high=high)


def _clipped(share: Interval, bound: InputBound) -> Interval:
    """An interval within the bound, from which nothing but the bound's nearest end is left if all is outside."""
    return replace(
        share,
        center=bound.clip(share.center),
        low=None if share.low is None else bound.clip(share.low),
        high=None if share.high is None else bound.clip(share.high),
    )
