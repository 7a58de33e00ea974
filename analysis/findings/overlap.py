"""Overlap: the share of an exchange that is overlapped with computation, and the step time predicted from its parts.

    in line       computation + exchange
    overlapped    between max(computation, exchange) and computation + exchange

The computation is `none` on as many ranks; all three are world seconds per step of the same blocks. A waterfall's
exposed communication over the time of communication only is the share that is not overlapped.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.findings.waterfall_parts import EXPOSED, Waterfall
from dlscale.analysis.launches import Block, CellLaunches
from dlscale.analysis.statistics import INSUFFICIENT, Interval, block_difference, block_ratio, median_interval

IN_LINE = "in line"  # as in `records.exchange_mode`
ByBlock = Mapping[Hashable, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """The predicted and the measured step, over the blocks common to training, computation and exchange."""

    computation: Interval  # seconds, medians
    measured: Interval
    shortest: float  # predicted: seconds, of geometric means; both ends are equal in line
    longest: float
    of_sum: Interval  # measured over computation + exchange, paired
    hidden: Interval | None  # 0 at `longest`, 1 at `shortest`, paired; None in line


def predict_step(
    training: Mapping[Block, float],
    computation: Mapping[Block, float],
    exchange: Mapping[Block, float],
    *,
    how: str,
) -> StepPrediction | None:
    """Predict a training's step from block -> seconds, and compare it; None without a common block."""
    common = [block for block in training if block in computation and block in exchange]
    if not common:
        return None
    measured: ByBlock = {block: training[block] for block in common}
    computed: ByBlock = {block: computation[block] for block in common}
    alone: ByBlock = {block: exchange[block] for block in common}
    longest: ByBlock = {block: computed[block] + alone[block] for block in common}
    low, high = max(_typical(computed), _typical(alone)), _typical(computed) + _typical(alone)
    return StepPrediction(
        computation=median_interval(list(computed.values())),
        measured=median_interval(list(measured.values())),
        shortest=high if how == IN_LINE else low,
        longest=high,
        of_sum=block_ratio(measured, longest),
        hidden=None if how == IN_LINE else _hidden(measured, computed, alone),
    )


def computation_of(training: CellLaunches, measured: Iterable[CellLaunches]) -> CellLaunches | None:
    """The launches of `none` on as many ranks, of the same kind of evidence, if possible on as many nodes."""
    cell = training.cell
    candidates = [
        launches
        for launches in measured
        if launches.family == training.family
        and launches.evidence == training.evidence
        and (launches.cell.backend, launches.cell.control, launches.cell.num_ranks)
        == ("none", "train", cell.num_ranks)
    ]
    return min(
        candidates,
        key=lambda launches: (launches.cell.num_nodes != cell.num_nodes, launches.cell.num_nodes),
        default=None,
    )


def _hidden(measured: ByBlock, computed: ByBlock, alone: ByBlock) -> Interval:
    """(computation + exchange - measured) / the shorter of the two, which is the most that can be overlapped.

    This equals 1 - (measured - longer) / shorter.
    """
    longer, shorter = (computed, alone) if _typical(alone) <= _typical(computed) else (alone, computed)
    return block_difference(measured, longer, shorter).complement()


def _typical(values: ByBlock) -> float:
    return float(np.exp(np.mean(np.log(list(values.values())))))


NOT_OVERLAPPED = "not overlapped: the exchange begins when the computation has ended, so nothing is hidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """The overlapped share of an exchange, `hidden`, relative to communication only; None if unknown, for `reason`.

    A negative share means that the exchange is slower during training, where both compete for cores and memory.
    """

    hidden: Interval | None
    reason: str = ""


def overlap(
    waterfall: Waterfall, alone: Mapping[Block, float], measured: Mapping[Block, float], *, exchange: str
) -> Overlap:
    """The overlapped share, 1 - exposed / alone. Stragglers are excluded: the waterfall has them as a separate part.

    `alone`: block -> seconds of one step's exchange as communication only, the sum over the buckets of a step, measured
    at their sizes on as many ranks. `measured`: block -> seconds per step of the waterfall's training. `exchange` is
    the mode that the backend reported: "in line", "overlapped", "mixed" or empty.

    The interval is paired by block. If the waterfall has no blocks, or other ones, it is that of a quotient of two
    independent estimates, to first order.
    """
    index = next((number for number, part in enumerate(waterfall.parts) if part.names == (EXPOSED,)), None)
    if exchange == "in line":
        return Overlap(hidden=None, reason=NOT_OVERLAPPED)
    if index is None:
        return Overlap(hidden=None, reason="exposed communication is not known by itself")
    if not alone:
        return Overlap(hidden=None, reason="the exchange alone was not measured at the sizes of this network")
    blocks = [block for block, _ in waterfall.by_block if block in alone and block in measured]
    if not blocks:
        return Overlap(
            hidden=_unpaired_overlap(waterfall.parts[index].seconds, median_interval(list(alone.values())))
        )
    losses = dict(waterfall.by_block)
    exposed = block_difference(
        {block: measured[block] for block in blocks},
        # The step without exposed communication.
        {block: measured[block] * (1 - losses[block][index]) for block in blocks},
        {block: alone[block] for block in blocks},
    )
    return Overlap(hidden=exposed.complement())


def _unpaired_overlap(exposed: Interval, alone: Interval) -> Interval:
    ratio = exposed.center / alone.center
    halves = [_half_width(interval) for interval in (exposed, alone)]
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


def _half_width(interval: Interval) -> float | None:
    if interval.low is None or interval.high is None:
        return None
    return (interval.high - interval.low) / 2
