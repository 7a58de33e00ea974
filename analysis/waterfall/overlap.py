"""How much of a backend's exchange the computation hides: what is left exposed, beside the exchange alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlscale.analysis.statistics import INSUFFICIENT, Interval
from dlscale.analysis.waterfall.parts import EXPOSED
from dlscale.analysis.waterfall.waterfall import Waterfall

IN_LINE = "in line: the exchange begins when the computation has ended, so nothing is hidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """`hidden` is a share of the exchange's own time; None where it is not known, for `reason`.

    Below 0 the exchange takes longer beside a training than alone: both want the same cores and the same memory.
    """

    hidden: Interval | None
    reason: str = ""


def overlap(waterfall: Waterfall, alone: Interval | float | None, *, exchange: str) -> Overlap:
    """1 - exposed / alone, where `alone` is what the exchange of one step's gradients takes by itself, in seconds.

    That is the sum over the buckets of a step, measured at their sizes on as many ranks while nobody computes, or a
    plain number that is taken as it is. `exchange` is what the backend said of itself: "in line", "overlapped",
    "mixed" or nothing. The interval is that of a quotient of two independent estimates, to first order. What late
    ranks cost is not in it: they are a part of their own.
    """
    part = next((one for one in waterfall.parts if one.names == (EXPOSED,)), None)
    if exchange == "in line":
        return Overlap(hidden=None, reason=IN_LINE)
    if part is None:
        return Overlap(hidden=None, reason="exposed communication is not known by itself")
    if alone is None:
        return Overlap(hidden=None, reason="the exchange alone was not measured at the sizes of this network")
    return Overlap(hidden=_hidden(part.seconds, alone))


def _hidden(exposed: Interval, alone: Interval | float) -> Interval:
    seconds = alone.center if isinstance(alone, Interval) else alone
    if not 0 < seconds < math.inf:
        raise ValueError(f"an exchange takes time, got {seconds} seconds")
    ratio = exposed.center / seconds
    halves = [_half(exposed), _half(alone) if isinstance(alone, Interval) else 0.0]
    known = [half for half in halves if half is not None]
    half = math.hypot(known[0] / seconds, ratio * known[1] / seconds) if len(known) == 2 else None
    return Interval(
        center=1 - ratio,
        low=None if half is None else 1 - ratio - half,
        high=None if half is None else 1 - ratio + half,
        level=exposed.level,
        method=INSUFFICIENT if half is None else "unpaired t",
        n=min(exposed.n, alone.n) if isinstance(alone, Interval) else exposed.n,
    )


def _half(interval: Interval) -> float | None:
    if interval.low is None or interval.high is None:
        return None
    return (interval.high - interval.low) / 2
