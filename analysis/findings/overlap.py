"""The exchange of each training by itself, the share of it that is overlapped, and the predicted step.

A step should take, with the computation of `none` on as many ranks, in world seconds of the same blocks:

    in line       computation + exchange
    overlapped    between max(computation, exchange) and computation + exchange

A waterfall's communication and waiting over the time of communication only is the share that is not overlapped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.families import Family, curve_order
from dlscale.analysis.findings.communication_only import CommunicationOnly, communication_only
from dlscale.analysis.findings.waterfall_levels import without_communication
from dlscale.analysis.findings.waterfall_parts import WAITING, Waterfall
from dlscale.analysis.launches import Block, CellLaunches, good_launches
from dlscale.analysis.statistics import INSUFFICIENT, Interval, block_difference, block_ratio, median_interval
from dlscale.analysis.text import backend_name
from dlscale.benchmarks.records.cell import Cell

IN_LINE = "in line"  # as in `records.exchange_mode`
NOT_OVERLAPPED = "not overlapped: the exchange begins when the computation has ended, so nothing is hidden"
ByBlock = Mapping[Block, float]


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
    training: ByBlock, computation: ByBlock, exchange: ByBlock, *, how: str
) -> StepPrediction | None:
    """Predict a training's step from block -> seconds, and compare it; None without a common block."""
    common = [block for block in training if block in computation and block in exchange]
    if not common:
        return None
    measured, computed, alone = (
        {block: seconds[block] for block in common} for seconds in (training, computation, exchange)
    )
    typical, typical_alone = _typical(computed), _typical(alone)
    high = typical + typical_alone
    hidden = None
    if how != IN_LINE:
        # (computation + exchange - measured) / the shorter one, the most that can be overlapped, which is
        # 1 - (measured - longer) / shorter.
        longer, shorter = (computed, alone) if typical_alone <= typical else (alone, computed)
        hidden = block_difference(measured, longer, shorter).complement()
    return StepPrediction(
        computation=median_interval(list(computed.values())),
        measured=median_interval(list(measured.values())),
        shortest=high if how == IN_LINE else max(typical, typical_alone),
        longest=high,
        of_sum=block_ratio(measured, {block: computed[block] + alone[block] for block in common}),
        hidden=hidden,
    )


def _typical(values: ByBlock) -> float:
    return float(np.exp(np.mean(np.log(list(values.values())))))


def overlap(waterfall: Waterfall, alone: ByBlock, measured: ByBlock, *, exchange: str) -> Interval | str:
    """The overlapped share, 1 - waiting / alone, or why it is not known. Negative if training slows the exchange.

    Stragglers are excluded: the waterfall has them as a separate part. `alone`: block -> seconds of one step's exchange
    as communication only, on as many ranks. `measured`: block -> seconds per step of the waterfall's training.
    `exchange` is the mode that the backend reported: "in line", "overlapped", "mixed" or empty.

    The interval is paired by block. If the waterfall has no blocks, or other ones, it is that of a quotient of two
    independent estimates, to first order.
    """
    index = next((number for number, part in enumerate(waterfall.parts) if part.names == (WAITING,)), None)
    if exchange == IN_LINE:
        return NOT_OVERLAPPED
    if index is None:
        return f"{WAITING} is not known by itself"
    if not alone:
        return "the exchange alone was not measured at the sizes of this network"
    blocks = [block for block, _ in waterfall.by_block if block in alone and block in measured]
    if not blocks:
        return _unpaired_overlap(waterfall.parts[index].seconds, median_interval(list(alone.values())))
    losses = dict(waterfall.by_block)
    waiting = block_difference(
        {block: measured[block] for block in blocks},
        # The step without communication and waiting.
        {block: measured[block] * (1 - losses[block][index]) for block in blocks},
        {block: alone[block] for block in blocks},
    )
    return waiting.complement()


def _unpaired_overlap(waiting: Interval, alone: Interval) -> Interval:
    ratio, half = waiting.center / alone.center, None
    if None not in (waiting.low, waiting.high, alone.low, alone.high):
        half = math.hypot(_half_width(waiting), ratio * _half_width(alone)) / alone.center
    return Interval(
        center=1 - ratio,
        low=None if half is None else 1 - ratio - half,
        high=None if half is None else 1 - ratio + half,
        level=waiting.level,
        method=f"{INSUFFICIENT}, unpaired" if half is None else "unpaired t",
        n=min(waiting.n, alone.n),
    )


def _half_width(interval: Interval) -> float:
    return ((interval.high or 0.0) - (interval.low or 0.0)) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """A cell's exchange, measured as communication only, beside its training."""

    alone: CommunicationOnly
    cell: Cell  # of the training
    how: str  # "in line", "overlapped", "mixed"; empty if the backend did not report it
    step: StepPrediction | None = None
    step_reason: str = ""  # why there is no prediction
    hidden: Interval | None = None  # the overlapped share
    hidden_reason: str = ""  # why it is not known

    @property
    def family(self) -> Family:
        return self.alone.family

    @property
    def evidence(self) -> str:
        """The kind of evidence of all launches used."""
        return self.alone.evidence


def communications(
    measured: Sequence[CellLaunches], waterfalls: Iterable[Waterfall]
) -> tuple[Communication, ...]:
    """One for each exchange measured as communication only on more than 1 rank, by family, backend and ranks.

    `waterfalls` must be computed from the same launches.
    """
    trained = good_launches(measured, controls={"train"})
    by_cell = {(one.family, one.cell.id, one.evidence): one for one in waterfalls}
    exchanges = [_communication(alone, trained, by_cell) for alone in communication_only(measured)]
    return tuple(sorted(exchanges, key=lambda one: curve_order(one.family, one.cell, one.evidence)))


def _communication(
    alone: CommunicationOnly,
    trained: Sequence[CellLaunches],
    waterfalls: Mapping[tuple[Family, str, str], Waterfall],
) -> Communication:
    cell = alone.cell.model_copy(update={"control": "train"})
    alike = [one for one in trained if (one.family, one.evidence) == (alone.family, alone.evidence)]
    training = next((one for one in alike if one.cell == cell), None)
    if training is None:
        return Communication(alone=alone, cell=cell, how="", step_reason="no training gave a number")
    seconds, how = training.world, training.exchange
    loss, hidden = waterfalls.get((alone.family, cell.id, alone.evidence)), None
    reason = "where its speed goes is not known"
    if loss:
        found = overlap(loss, alone.by_block, seconds, exchange=how)
        hidden, reason = (None, found) if isinstance(found, str) else (found, "")
    none = without_communication(training, alike)
    step = predict_step(seconds, none.world, alone.by_block, how=how) if none else None
    what = f"none on {cell.num_ranks} ranks"
    return Communication(
        alone=alone,
        cell=cell,
        how=how,
        step=step,
        step_reason="" if step else f"no block in common with {what}" if none else f"{what} was not measured",
        hidden=hidden,
        hidden_reason=reason,
    )


def communications_on_most_ranks(exchanges: Iterable[Communication]) -> list[Communication]:
    """The exchange on the most ranks, for each family, backend and kind of evidence."""
    groups: dict[tuple[object, ...], list[Communication]] = {}
    for one in exchanges:
        groups.setdefault((one.family, backend_name(one.cell), one.evidence), []).append(one)
    return [max(group, key=lambda one: one.cell.num_ranks) for group in groups.values()]
