"""How much of a backend's exchange the computation hides: what is left exposed, beside the exchange alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dlscale.analysis.statistics import INSUFFICIENT, Interval, block_difference, median_interval
from dlscale.analysis.waterfall.parts import EXPOSED
from dlscale.analysis.waterfall.times import Block
from dlscale.analysis.waterfall.waterfall import Waterfall

IN_LINE = "in line: the exchange begins when the computation has ended, so nothing is hidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """`hidden` is a share of the exchange's own time; None where it is not known, for `reason`.

    Below 0 the exchange takes longer beside a training than alone: both want the same cores and the same memory.
    """

    hidden: Interval | None
    reason: str = ""


def overlap(
    waterfall: Waterfall, alone: Mapping[Block, float], measured: Mapping[Block, float], *, exchange: str
) -> Overlap:
    """1 - exposed / alone. What late ranks cost is not in it: they are a part of their own.

    `alone`: block -> seconds that the exchange of one step's gradients takes by itself, the sum over the buckets of a
    step, measured at their sizes on as many ranks while nobody computes. `measured`: block -> seconds per step of the
    training that the waterfall is of. `exchange` is what the backend said of itself: "in line", "overlapped", "mixed"
    or nothing.

    The interval is paired by block. Where a waterfall has no blocks, or other ones, it is that of a quotient of two
    independent estimates, to first order.
    """
    index = next((i for i, one in enumerate(waterfall.parts) if one.names == (EXPOSED,)), None)
    if exchange == "in line":
        return Overlap(hidden=None, reason=IN_LINE)
    if index is None:
        return Overlap(hidden=None, reason="exposed communication is not known by itself")
    if not alone:
        return Overlap(hidden=None, reason="the exchange alone was not measured at the sizes of this network")
    blocks = [block for block, _ in waterfall.by_block if block in alone and block in measured]
    if not blocks:
        return Overlap(
            hidden=_unpaired(waterfall.parts[index].seconds, median_interval(list(alone.values())))
        )
    losses = dict(waterfall.by_block)
    exposed = block_difference(
        {block: measured[block] for block in blocks},
        # What a step would take if nothing were exposed.
        {block: measured[block] * (1 - losses[block][index]) for block in blocks},
        {block: alone[block] for block in blocks},
    )
    return Overlap(hidden=exposed.complement())


def _unpaired(exposed: Interval, alone: Interval) -> Interval:
    ratio = exposed.center / alone.center
    halves = [_half(one) for one in (exposed, alone)]
    known = [half for half in halves if half is not None]
    half = math.hypot(known[0], ratio * known[1]) / alone.center if len(known) == 2 else None
    return Interval(
        center=1 - ratio,
        low=None if half is None else 1 - ratio - half,
        high=None if half is None else 1 - ratio + half,
        level=exposed.level,
        method=f"{INSUFFICIENT}, unpaired" if half is None else "unpaired t",
        n=min(exposed.n, alone.n),
    )


def _half(interval: Interval) -> float | None:
    if interval.low is None or interval.high is None:
        return None
    return (interval.high - interval.low) / 2
