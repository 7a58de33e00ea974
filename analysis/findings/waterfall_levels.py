"""The levels of a waterfall: seconds per step that a cell and its controls measured, block by block.

`gather` finds the launches that are a cell's controls, in the blocks that all of them have. A level that the waterfall
needs must be there; one that refines it is left out where it would leave too few blocks. The base case may have run in
another job: then a chain of trainings leads to it, or it is unpaired.

`waterfall_parts` has the picture of the levels and of the parts between them. The share of a part, with its interval,
is estimated from `Levels`. Nobody waits for samples longer than fetching them takes. So where fetching alone was
measured (control `loader`), the input stall lies between minus what 1 rank and plus what N ranks need for it
(`InputBound`), whatever noise the difference of four levels has; what it loses or gains by that is
counted as sharing the machine, and the sum of the two stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from dlscale.analysis.families import base_cell
from dlscale.analysis.launches import Block, CellLaunches
from dlscale.analysis.metrics import VERSUS_NONE, BaseName, link_note, links_between
from dlscale.analysis.records import Seconds
from dlscale.analysis.statistics import (
    LEVEL,
    MIN_BLOCKS,
    Interval,
    block_ratio,
    chained_method,
    ratio_of,
    t_interval,
)
from dlscale.benchmarks.records.cell import Cell, Control

# "..._resident" is the same level on tensors in memory; "resident" is that of N ranks. "link" is no level of the
# staircase: the training through which the base case of another job is reached. Seconds per step.
Level = Literal[
    "ideal",
    "ideal_resident",
    "alone",
    "alone_resident",
    "thin",
    "thin_resident",
    "resident",
    "mean",
    "latest",
    "gathered",
    "haloed",
    "measured",
    "link",
]
Terms = dict[Level, int]  # a sum of levels, each with its factor
ByBlock = Mapping[Block, float]
INPUT_TERMS: Terms = {
    "mean": 1,
    "ideal": -1,
    "ideal_resident": 1,
    "resident": -1,
}  # of the input stall by itself
# A training on 1 rank is a control of the batch, too, if it has the right local batch.
ALONE = {"alone", "train"}
MIN_COVERED = 0.95  # share of a window's seconds in its timestamps; below, the two clocks disagree
BASE_LEVELS = BaseName(relation=VERSUS_NONE, base="none on 1 rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputBound:
    """The limits of the input stall as shares of the measured step: fetching alone on 1 rank, negative, and on N.

    Both are the outer ends of 95 % intervals; `low` is -inf if fetching was not measured on 1 rank.
    """

    low: float
    high: float

    def clip(self, share: float) -> float:
        return min(max(share, self.low), self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Seconds per step of each level, block by block, and notes on what is doubtful about them.

    `near`: the levels in `blocks`, those of level "measured". `far`: the base case's levels in other blocks, if it
    shares no block with "measured"; else empty. If `near` has level "link", far levels are relative to the other end
    of a chain of trainings that begins with it, and `between` has the log ratios of its further steps. `bound`: that of
    the input stall, if fetching alone was measured.
    """

    near: Mapping[Level, Seconds]
    far: Mapping[Level, Seconds]
    between: tuple[Seconds, ...] = ()
    bound: InputBound | None = None
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> frozenset[Level]:
        """The levels of the staircase that have values."""
        return frozenset((*self.near, *self.far)) - {"link"}

    @property
    def chained(self) -> bool:
        """Whether far levels are paired by way of a link."""
        return "link" in self.near and bool(self.far)

    def typical(self, level: Level) -> float:
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
            known = [end for end in ends if math.isfinite(end)]
            low, high = min(center, rest.low + min(known)), max(center, rest.high + max(known))
        return replace(own, center=center, low=low, high=high)


def _clipped(share: Interval, bound: InputBound) -> Interval:
    """An interval within the bound, from which nothing but the bound's nearest end is left if all is outside."""
    low, high = (end if end is None else bound.clip(end) for end in (share.low, share.high))
    return replace(share, center=bound.clip(share.center), low=low, high=high)


def difference(over: Terms, under: Terms) -> Terms:
    """One sum of levels minus another."""
    factors = {level: over.get(level, 0) - under.get(level, 0) for level in (*over, *under)}
    return {level: factor for level, factor in factors.items() if factor}


def gather(mine: CellLaunches, measured: Sequence[CellLaunches]) -> Levels | str:
    """The levels for the waterfall of `mine`, a training over a backend on N ranks, or why there are none."""
    measured = [launches for launches in measured if launches.family.system == mine.family.system]
    family = [launches for launches in measured if launches.family == mine.family]
    ranks = f"none on {mine.cell.num_ranks} ranks"
    crowd = without_communication(mine, family)
    if (
        crowd is None and mine.cell.split == 1
    ):  # records of split samples have no such control if they are older
        return f"{ranks} was not measured"
    base = base_cell(mine.cell, [launches.cell for launches in family], same_backend=False)
    ideal = base and _launches_of(family, base, mine.evidence)
    if not ideal:
        return BASE_LEVELS.not_measured
    blocks = mine.world.keys() & (crowd or mine).world.keys()
    if not blocks:
        return f"no block in common with {ranks}"
    notes = []
    if ideal.evidence != mine.evidence:
        notes.append(BASE_LEVELS.is_other(ideal.evidence, mine.evidence))
    needed, optional = _levels_beside(mine, crowd, ideal, measured)
    base_levels = _base_levels(mine, ideal, measured)
    far: dict[Level, Seconds] = {}
    between: tuple[Seconds, ...] = ()
    if blocks & ideal.world.keys():
        needed["ideal"] = base_levels.pop("ideal")
        optional |= base_levels
    else:
        links = links_between(mine, ideal, family) or ()
        ends: dict[Level, ByBlock] = {"ideal": base_levels.pop("ideal")}
        if links:
            needed["link"], ends["link"] = links[0].world, links[-1].world
            between = tuple(_log_ratios(over, under) for under, over in pairwise(links))
        far, _ = _common(ends, base_levels, list(ideal.world))
        if links:
            end = far.pop("link")
            far = {name: values / end for name, values in far.items()}
        notes.append(link_note(BASE_LEVELS, links))
    near, common = _common(needed, optional, [block for block in mine.world if block in blocks])
    if left_out := len(mine.cases) - len(common):
        paused = any(case.part > 1 for launches in measured for case in launches.cases)
        why = "a control is missing there" + (" or ran before or after a pause" if paused else "")
        notes.append(f"{left_out} of {len(mine.cases)} blocks left out: {why}")
    return Levels(
        near=near,
        far=far,
        between=between,
        bound=_input_bound(mine, crowd, ideal, measured),
        blocks=tuple(common),
        notes=(*notes, *(_of_stamps(crowd) if crowd else ())),
    )


def without_communication(mine: CellLaunches, family: Iterable[CellLaunches]) -> CellLaunches | None:
    """The launches of `none` on as many ranks, if possible on as many nodes: servers may need more nodes."""
    cell = mine.cell

    def unlike(launches: CellLaunches) -> tuple[object, ...]:
        nodes = launches.cell.num_nodes
        return launches.evidence != mine.evidence, launches.evidence, nodes != cell.num_nodes, nodes

    wanted = (mine.family, "none", "train", cell.num_ranks, cell.split)
    candidates = [
        one
        for one in family
        if (one.family, one.cell.backend, one.cell.control, one.cell.num_ranks, one.cell.split) == wanted
    ]
    return min(candidates, key=unlike, default=None)


def _levels_beside(
    mine: CellLaunches, crowd: CellLaunches | None, ideal: CellLaunches, measured: Sequence[CellLaunches]
) -> tuple[dict[Level, ByBlock], dict[Level, ByBlock]]:
    """The levels that a waterfall needs and the optional ones that refine it, from launches in the same blocks."""
    needed: dict[Level, ByBlock] = {"measured": mine.world}
    optional: dict[Level, ByBlock] = {}
    if crowd:
        needed["mean"] = crowd.mean
    if crowd and all(case.latest is not None for case in crowd.cases):
        needed["latest"] = crowd.latest
    timed: dict[Level, dict[Block, list[float]]] = {
        "gathered": {case.block: case.record.gather_seconds for case in mine.good},
        "haloed": {case.block: case.record.halo_seconds for case in mine.good},
    }
    for level, by_block in timed.items():
        if all(len(seconds) == mine.cell.num_ranks for seconds in by_block.values()):
            # Who comes to an exchange last waits least: what others spend beyond that is waiting.
            optional[level] = {block: mine.world[block] - min(seconds) for block, seconds in by_block.items()}
    if crowd and (resident := _control(crowd, measured, "synthetic")):
        optional["resident"] = resident.mean
    if mine.cell.scaling_mode == "strong" or mine.cell.split > 1:
        optional |= _alone(mine, ideal, measured)
    return needed, optional


def _base_levels(
    mine: CellLaunches, ideal: CellLaunches, measured: Sequence[CellLaunches]
) -> dict[Level, ByBlock]:
    """The base case's levels, scaled to the local batch of `mine`."""
    factor = mine.cell.rank_work / ideal.cell.rank_work
    levels: dict[Level, ByBlock] = {"ideal": _scaled(ideal.world, factor)}
    if resident := _control(ideal, measured, "synthetic"):
        levels["ideal_resident"] = _scaled(resident.world, factor)
    return levels


def _alone(mine: CellLaunches, ideal: CellLaunches, measured: Iterable[CellLaunches]) -> dict[Level, ByBlock]:
    """The levels of 1 rank of `none` at the local batch of N ranks, measured for any scaling mode.

    With whole samples and, where ranks share them, with the rows of one.
    """
    differs = {"scaling_mode", "global_batch", "local_batch", "control", "data", "split"}
    alike = ideal.cell.model_dump(exclude=differs)
    names: dict[tuple[str, int], Level] = {
        ("synthetic", mine.cell.split): "thin_resident",
        (mine.cell.data, mine.cell.split): "thin",
        ("synthetic", 1): "alone_resident",
        (mine.cell.data, 1): "alone",
    }
    return {
        names[launches.cell.data, launches.cell.split]: launches.world
        for launches in measured
        if launches.cell.num_ranks == 1
        and launches.cell.local_batch == mine.cell.local_batch
        and launches.cell.control in ALONE
        and (launches.cell.data, launches.cell.split) in names
        and launches.evidence == ideal.evidence
        and launches.cell.model_dump(exclude=differs) == alike
    }


def _input_bound(
    mine: CellLaunches, crowd: CellLaunches | None, ideal: CellLaunches, measured: Sequence[CellLaunches]
) -> InputBound | None:
    """What fetching alone takes of the measured step, on N ranks and on 1; None if it was not measured on N."""
    many = _control(crowd, measured, "loader") if crowd else None
    first = _control(ideal, measured, "loader")
    if many is None:
        return None
    step, low = mine.world, -math.inf
    if first:
        seconds = _scaled(first.mean, mine.cell.rank_work / ideal.cell.rank_work)
        low = -_upper(block_ratio(seconds, step))
    return InputBound(low=low, high=_upper(block_ratio(many.mean, step)))


def _upper(share: Interval) -> float:
    """The upper limit, or the share itself where there are too few blocks for one."""
    return share.center if share.high is None else share.high


def _control(
    launches: CellLaunches, measured: Iterable[CellLaunches], control: Control
) -> CellLaunches | None:
    """That control of the same cell: `synthetic` trains on tensors in memory, `loader` only fetches."""
    return _launches_of(measured, launches.cell.model_copy(update={"control": control}), launches.evidence)


def _launches_of(measured: Iterable[CellLaunches], cell: Cell, evidence: str) -> CellLaunches | None:
    """The launches of a cell with that kind of evidence, else with the first other one."""
    alike = (
        one for one in measured if (one.cell.num_ranks, one.cell.control) == (cell.num_ranks, cell.control)
    )
    candidates = (launches for launches in alike if launches.cell == cell)
    return min(candidates, key=lambda one: (one.evidence != evidence, one.evidence), default=None)


def _common(
    needed: Mapping[Level, ByBlock], optional: Mapping[Level, ByBlock], blocks: Iterable[Block]
) -> tuple[dict[Level, Seconds], list[Block]]:
    """All levels in their common blocks. An optional level is left out if it would leave too few blocks."""
    common = [block for block in blocks if all(block in values for values in needed.values())]
    kept = dict(needed)
    for level, values in optional.items():
        shared = [block for block in common if block in values]
        if len(shared) >= min(MIN_BLOCKS, len(common)):
            kept[level], common = values, shared
    return {level: np.array([values[block] for block in common]) for level, values in kept.items()}, common


def _of_stamps(crowd: CellLaunches) -> list[str]:
    shares = [case.covered for case in crowd.cases if case.covered is not None]
    if not shares or min(shares) >= MIN_COVERED:
        return []
    return [
        f"the stamps of none on {crowd.cell.num_ranks} ranks add up to {100 * min(shares):.0f} % of its windows: the "
        "length of steps is taken from the windows, only how much ranks differ from the stamps"
    ]


def _log_ratios(over: CellLaunches, under: CellLaunches) -> Seconds:
    first, second = over.world, under.world
    return np.log([first[block] / second[block] for block in first if block in second])


def _scaled(seconds: ByBlock, factor: float) -> ByBlock:
    return {block: value * factor for block, value in seconds.items()}
