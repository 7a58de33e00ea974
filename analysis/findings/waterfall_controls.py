"""The controls of a waterfall: the launches that measured the levels of a cell, in the blocks that all of them have.

A level that the staircase needs must be there; one that refines it is left out where it would leave too few blocks. The
base case may have run in another job: then a chain of trainings leads to it, or it is unpaired.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dlscale.analysis.families import base_cell
from dlscale.analysis.findings.waterfall_parts import InputBound, Level, Levels
from dlscale.analysis.launches import Block, CellLaunches
from dlscale.analysis.metrics import link_note, links_between
from dlscale.analysis.records import Seconds
from dlscale.analysis.statistics import MIN_BLOCKS, Interval, block_ratio
from dlscale.benchmarks.records.record import Cell, Control

ByBlock = Mapping[Block, float]
# A training on 1 rank is a control of the batch, too, if it has the right local batch.
ALONE = {"alone", "train"}
MIN_COVERED = 0.95  # share of a window's seconds in its timestamps; below, the two clocks disagree
BASE_LEVELS = "base case (a), none on 1 rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The levels of one cell in their common blocks; None, and the reason, if there are none."""

    levels: Levels | None
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""


def gather(mine: CellLaunches, measured: Sequence[CellLaunches]) -> Gathered:
    """Gather the levels for the waterfall of `mine`, a training over a backend on N ranks."""
    measured = [launches for launches in measured if launches.family.system == mine.family.system]
    family = [launches for launches in measured if launches.family == mine.family]
    crowd = _crowd(mine, family)
    if crowd is None:
        return Gathered(levels=None, reason=f"none on {mine.cell.num_ranks} ranks was not measured")
    base = base_cell(mine.cell, [launches.cell for launches in family], same_backend=False)
    ideal = base and _launches_of(family, base, mine.evidence)
    if not ideal:
        return Gathered(levels=None, reason=f"no {BASE_LEVELS}: not measured")
    measured_by_block, ideal_by_block = mine.by_block("world"), ideal.by_block("world")
    shared = crowd.by_block("world")
    blocks = [block for block in measured_by_block if block in shared]
    if not blocks:
        return Gathered(levels=None, reason=f"no block in common with none on {mine.cell.num_ranks} ranks")
    notes = []
    if ideal.evidence != mine.evidence:
        notes.append(f"{BASE_LEVELS}, is {ideal.evidence}, not {mine.evidence}")
    needed, optional = _beside(mine, crowd, ideal, measured)
    base_levels = _base(mine, ideal, measured)
    far: dict[Level, Seconds] = {}
    between: tuple[Seconds, ...] = ()
    if any(block in ideal_by_block for block in blocks):
        needed["ideal"] = base_levels.pop("ideal")
        optional |= base_levels
    else:
        links = links_between(mine, ideal, family) or ()
        ends: dict[Level, ByBlock] = {"ideal": base_levels.pop("ideal")}
        if links:
            needed["link"], ends["link"] = links[0].by_block("world"), links[-1].by_block("world")
            between = tuple(_log_ratios(over, under) for under, over in pairwise(links))
        far, _ = _common(ends, base_levels, list(ideal_by_block))
        if links:
            end = far.pop("link")
            far = {name: values / end for name, values in far.items()}
        notes.append(link_note(BASE_LEVELS, links))
    near, common = _common(needed, optional, blocks)
    if left_out := len(mine.cases) - len(common):
        paused = any(case.part > 1 for launches in measured for case in launches.cases)
        why = "a control is missing there" + (" or ran before or after a pause" if paused else "")
        notes.append(f"{left_out} of {len(mine.cases)} blocks left out: {why}")
    notes += _of_stamps(crowd)
    levels = Levels(near=near, far=far, between=between, bound=_input_bound(mine, crowd, ideal, measured))
    return Gathered(levels=levels, blocks=tuple(common), notes=tuple(notes))


def _crowd(mine: CellLaunches, family: Iterable[CellLaunches]) -> CellLaunches | None:
    """The launches of `none` on as many ranks, if possible on as many nodes: servers may need more nodes."""
    cell = mine.cell
    candidates = [
        launches
        for launches in family
        if (launches.cell.backend, launches.cell.control, launches.cell.num_ranks)
        == ("none", "train", cell.num_ranks)
    ]

    def unlike(launches: CellLaunches) -> tuple[object, ...]:
        nodes = launches.cell.num_nodes
        return launches.evidence != mine.evidence, launches.evidence, nodes != cell.num_nodes, nodes

    return min(candidates, key=unlike, default=None)


def _beside(
    mine: CellLaunches, crowd: CellLaunches, ideal: CellLaunches, measured: Sequence[CellLaunches]
) -> tuple[dict[Level, ByBlock], dict[Level, ByBlock]]:
    """The levels that a waterfall needs and the optional ones that refine it, from launches in the same blocks."""
    needed: dict[Level, ByBlock] = {"measured": mine.by_block("world"), "mean": crowd.by_block("mean")}
    optional: dict[Level, ByBlock] = {}
    if all(case.latest is not None for case in crowd.cases):
        needed["latest"] = crowd.by_block("latest")
    if resident := _control(crowd, measured, "synthetic"):
        optional["resident"] = resident.by_block("mean")
    if mine.cell.scaling_mode == "strong":
        optional |= _alone(mine, ideal, measured)
    return needed, optional


def _base(mine: CellLaunches, ideal: CellLaunches, measured: Sequence[CellLaunches]) -> dict[Level, ByBlock]:
    """The base case's levels, scaled to the local batch of `mine`."""
    factor = mine.cell.local_batch / ideal.cell.local_batch
    levels: dict[Level, ByBlock] = {"ideal": _scaled(ideal.by_block("world"), factor)}
    if resident := _control(ideal, measured, "synthetic"):
        levels["ideal_resident"] = _scaled(resident.by_block("world"), factor)
    return levels


def _control(
    launches: CellLaunches, measured: Iterable[CellLaunches], control: Control
) -> CellLaunches | None:
    """That control of the same cell: `synthetic` trains on tensors in memory, `loader` only fetches."""
    return _launches_of(measured, launches.cell.model_copy(update={"control": control}), launches.evidence)


def _input_bound(
    mine: CellLaunches, crowd: CellLaunches, ideal: CellLaunches, measured: Sequence[CellLaunches]
) -> InputBound | None:
    """What fetching alone takes of the measured step, on N ranks and on 1; None if it was not measured on N."""
    fetching, first = _control(crowd, measured, "loader"), _control(ideal, measured, "loader")
    if fetching is None:
        return None
    step = mine.by_block("world")
    high = block_ratio(fetching.by_block("mean"), step)
    low = None
    if first:
        low = block_ratio(
            _scaled(first.by_block("mean"), mine.cell.local_batch / ideal.cell.local_batch), step
        )
    return InputBound(low=-_upper(low) if low else -math.inf, high=_upper(high))


def _upper(share: Interval) -> float:
    """The upper limit, or the share itself where there are too few blocks for one."""
    return share.center if share.high is None else share.high


def _alone(mine: CellLaunches, ideal: CellLaunches, measured: Iterable[CellLaunches]) -> dict[Level, ByBlock]:
    """The levels of 1 rank of `none` at the local batch of N ranks, measured for either scaling mode."""
    differs = {"scaling_mode", "global_batch", "local_batch", "control", "data"}
    alike = ideal.cell.model_dump(exclude=differs)
    levels: dict[Level, ByBlock] = {}
    for launches in measured:
        cell = launches.cell
        fits = (
            cell.num_ranks == 1
            and cell.local_batch == mine.cell.local_batch
            and cell.control in ALONE
            and launches.evidence == ideal.evidence
            and cell.model_dump(exclude=differs) == alike
        )
        if fits and cell.data == mine.cell.data:
            levels["alone"] = launches.by_block("world")
        elif fits and cell.data == "synthetic":
            levels["alone_resident"] = launches.by_block("world")
    return levels


def _launches_of(measured: Iterable[CellLaunches], cell: Cell, evidence: str) -> CellLaunches | None:
    """The launches of a cell with that kind of evidence, else with the first other one."""
    candidates = [launches for launches in measured if launches.cell == cell]
    return min(
        candidates, key=lambda launches: (launches.evidence != evidence, launches.evidence), default=None
    )


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
    first, second = over.by_block("world"), under.by_block("world")
    return np.log([first[block] / second[block] for block in first if block in second])


def _scaled(seconds: ByBlock, factor: float) -> ByBlock:
    return {block: value * factor for block, value in seconds.items()}
