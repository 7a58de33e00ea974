"""Which launches are whose controls: the levels of one cell, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.family import base_cell
from dlscale.analysis.statistics import MIN_BLOCKS
from dlscale.analysis.waterfall.levels import Levels
from dlscale.analysis.waterfall.parts import Level
from dlscale.analysis.waterfall.times import MIN_COVERED, Block, Launched, Seconds
from dlscale.benchmarks.record import Cell

ByBlock = Mapping[Block, float]
# A training on 1 rank is a control of the batch, too, where its local batch happens to be the right one.
ALONE = {"alone", "train"}
BASE = "base case (a), none on 1 rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The levels of one cell in the blocks that they have in common; None, and why, if there are none."""

    levels: Levels | None
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""


def gather(mine: Launched, others: Sequence[Launched]) -> Gathered:
    """Everything that was measured for the waterfall of `mine`, a training over a backend on N ranks."""
    others = [one for one in others if one.family.system == mine.family.system]
    family = [one for one in others if one.family == mine.family]
    crowd = _crowd(mine, family)
    if crowd is None:
        return Gathered(levels=None, reason=f"none on {mine.cell.num_ranks} ranks was not measured")
    base = base_cell(mine.cell, [one.cell for one in family], same_backend=False)
    ideal = base and _of(family, base, mine.evidence)
    if not ideal:
        return Gathered(levels=None, reason=f"no {BASE}: not measured")
    blocks = [block for block in sorted(mine.times) if block in crowd.times]
    if not blocks:
        return Gathered(levels=None, reason=f"no block in common with none on {mine.cell.num_ranks} ranks")
    notes = []
    if ideal.evidence != mine.evidence:
        notes.append(f"{BASE}, is {ideal.evidence}, not {mine.evidence}")
    needed, optional = _beside(mine, crowd, ideal, others)
    base_levels = _base(mine, ideal, others)
    far: dict[Level, Seconds] = {}
    if any(block in ideal.times for block in blocks):
        needed["ideal"] = base_levels.pop("ideal")
        optional |= base_levels
    else:
        far, _ = _common({"ideal": base_levels.pop("ideal")}, base_levels, sorted(ideal.times))
        notes.append(f"unpaired with {BASE}: no common block")
    near, common = _common(needed, optional, blocks)
    if left_out := len(mine.times) - len(common):
        notes.append(f"{left_out} of {len(mine.times)} blocks left out: a control is missing there")
    notes += _of_stamps(crowd)
    levels = Levels(near=near, far=far)
    return Gathered(levels=levels, blocks=tuple(common), notes=tuple(notes))


def _crowd(mine: Launched, family: Iterable[Launched]) -> Launched | None:
    """`none` on as many ranks, if possible on as many nodes: servers may need some more."""
    cell = mine.cell
    found = [
        one
        for one in family
        if (one.cell.backend, one.cell.control, one.cell.num_ranks) == ("none", "train", cell.num_ranks)
    ]

    def unlike(one: Launched) -> tuple[object, ...]:
        nodes = one.cell.num_nodes
        return one.evidence != mine.evidence, one.evidence, nodes != cell.num_nodes, nodes

    return min(found, key=unlike, default=None)


def _beside(
    mine: Launched, crowd: Launched, ideal: Launched, others: Sequence[Launched]
) -> tuple[dict[Level, ByBlock], dict[Level, ByBlock]]:
    """The levels that a waterfall needs, and those that refine it, of launches beside it in its blocks."""
    needed: dict[Level, ByBlock] = {"measured": mine.seconds("world"), "mean": crowd.seconds("mean")}
    optional: dict[Level, ByBlock] = {}
    if all(times.latest is not None for times in crowd.times.values()):
        needed["latest"] = crowd.seconds("latest")
    if resident := _resident(crowd, others):
        optional["resident"] = resident.seconds("mean")
    if mine.cell.scaling_mode == "strong":
        optional |= _alone(mine, ideal, others)
    return needed, optional


def _base(mine: Launched, ideal: Launched, others: Sequence[Launched]) -> dict[Level, ByBlock]:
    """The base case's levels, for as many samples as a rank of `mine` trains on."""
    factor = mine.cell.local_batch / ideal.cell.local_batch
    found: dict[Level, ByBlock] = {"ideal": _scaled(ideal.seconds("world"), factor)}
    if resident := _resident(ideal, others):
        found["ideal_resident"] = _scaled(resident.seconds("world"), factor)
    return found


def _resident(one: Launched, others: Iterable[Launched]) -> Launched | None:
    """The same on tensors in memory, beside it in its launches."""
    return _of(others, one.cell.model_copy(update={"control": "synthetic"}), one.evidence)


def _alone(mine: Launched, ideal: Launched, others: Iterable[Launched]) -> dict[Level, ByBlock]:
    """1 rank of `none` at the local batch of N ranks, whatever the kind of scaling it was measured for."""
    differs = {"scaling_mode", "global_batch", "local_batch", "control", "data"}
    alike = ideal.cell.model_dump(exclude=differs)
    found: dict[Level, ByBlock] = {}
    for one in others:
        cell = one.cell
        fits = (
            cell.num_ranks == 1
            and cell.local_batch == mine.cell.local_batch
            and cell.control in ALONE
            and one.evidence == ideal.evidence
            and cell.model_dump(exclude=differs) == alike
        )
        if fits and cell.data == mine.cell.data:
            found["alone"] = one.seconds("world")
        elif fits and cell.data == "synthetic":
            found["alone_resident"] = one.seconds("world")
    return found


def _of(some: Iterable[Launched], cell: Cell, evidence: str) -> Launched | None:
    """The launches of a cell: of that kind of evidence, else of the first other one."""
    found = [one for one in some if one.cell == cell]
    return min(found, key=lambda one: (one.evidence != evidence, one.evidence), default=None)


def _common(
    needed: Mapping[Level, ByBlock], optional: Mapping[Level, ByBlock], blocks: Iterable[Block]
) -> tuple[dict[Level, Seconds], list[Block]]:
    """All levels in the blocks that they share. What would leave too few of them is left out instead."""
    common = [block for block in blocks if all(block in one for one in needed.values())]
    kept = dict(needed)
    for level, values in optional.items():
        shared = [block for block in common if block in values]
        if len(shared) >= min(MIN_BLOCKS, len(common)):
            kept[level], common = values, shared
    return {level: np.array([values[block] for block in common]) for level, values in kept.items()}, common


def _of_stamps(crowd: Launched) -> list[str]:
    shares = [times.covered for times in crowd.times.values() if times.covered is not None]
    if not shares or min(shares) >= MIN_COVERED:
        return []
    return [
        f"the stamps of none on {crowd.cell.num_ranks} ranks add up to {100 * min(shares):.0f} % of its windows: the "
        "length of steps is taken from the windows, only how much ranks differ from the stamps"
    ]


def _scaled(seconds: ByBlock, factor: float) -> ByBlock:
    return {block: value * factor for block, value in seconds.items()}
