"""A training's step beside what its parts take by themselves: from the micro-benchmark to the training.

    in line       computation + exchange
    overlapped    between max(computation, exchange) and computation + exchange

The computation is `none` on as many ranks, all three are world seconds per step of the same blocks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.statistics import Interval, block_difference, block_ratio, median_interval
from dlscale.analysis.waterfall.times import Block, Launched

IN_LINE = "in line"  # as `frame.exchange` says it
ByBlock = Mapping[Hashable, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Over the blocks that training, computation and exchange have in common."""

    computation: Interval  # seconds, medians
    measured: Interval
    shortest: float  # predicted: seconds, of geometric means; both ends are equal in line
    longest: float
    of_sum: Interval  # measured over computation + exchange, paired
    hidden: Interval | None  # 0 at `longest`, 1 at `shortest`, paired; None in line


def step(
    training: Mapping[Block, float],
    computation: Mapping[Block, float],
    exchange: Mapping[Block, float],
    *,
    how: str,
) -> Step | None:
    """What is predicted of a training and what it does, by block -> seconds; None without a common block."""
    common = [block for block in training if block in computation and block in exchange]
    if not common:
        return None
    measured: ByBlock = {block: training[block] for block in common}
    computed: ByBlock = {block: computation[block] for block in common}
    alone: ByBlock = {block: exchange[block] for block in common}
    longest: ByBlock = {block: computed[block] + alone[block] for block in common}
    low, high = max(_typical(computed), _typical(alone)), _typical(computed) + _typical(alone)
    return Step(
        computation=median_interval(list(computed.values())),
        measured=median_interval(list(measured.values())),
        shortest=high if how == IN_LINE else low,
        longest=high,
        of_sum=block_ratio(measured, longest),
        hidden=None if how == IN_LINE else _hidden(measured, computed, alone),
    )


def computation_of(training: Launched, others: Iterable[Launched]) -> Launched | None:
    """`none` on as many ranks, of the same kind of evidence; if possible on as many nodes."""
    cell = training.cell
    found = [
        one
        for one in others
        if one.family == training.family
        and one.evidence == training.evidence
        and (one.cell.backend, one.cell.control, one.cell.num_ranks) == ("none", "train", cell.num_ranks)
    ]
    return min(
        found, key=lambda one: (one.cell.num_nodes != cell.num_nodes, one.cell.num_nodes), default=None
    )


def _hidden(measured: ByBlock, computed: ByBlock, alone: ByBlock) -> Interval:
    """(computation + exchange - measured) over the shorter of the two, which is what can be hidden at most.

    Whichever of the two is the shorter one, that is 1 - (measured - longer) / shorter.
    """
    longer, shorter = (computed, alone) if _typical(alone) <= _typical(computed) else (alone, computed)
    return block_difference(measured, longer, shorter).complement()


def _typical(values: ByBlock) -> float:
    return float(np.exp(np.mean(np.log(list(values.values())))))
