"""The parts of a waterfall: which a loss can be cut into by the controls that were measured, and their intervals.

A staircase of steps, in seconds; every part is the height of one stair, so that together they are the loss:

    ideal      1 rank of `none`, per sample, times the local batch of N ranks
      | batch effect            the local batch is smaller than the base case's (strong scaling only)
    alone      1 rank of `none` at the local batch of N ranks
      | co-running              N ranks share memory, caches and power, and compute more slowly
      | input stall             N ranks wait longer for their samples than 1 rank does
    mean       N ranks of `none`: the average rank's step
      | late ranks              every step has a latest rank, and all others wait for it
    latest     N ranks of `none`: mean over steps of the latest rank's
      | exposed communication   all the rest
    measured   N ranks over the backend

Late ranks and the input stall both happen in `none` on N ranks, where nobody waits for anybody. They are told apart
by a line at the average rank's step, and no millisecond is on both sides:

    rank 0  |---- computes ----|~ input ~|                         below the line: what the average rank does,
    rank 1  |------- computes -------|~~~~~ input ~~~~~|           computing (co-running) and fetching (input stall);
    rank 2  |---- computes ----|~~ input ~~|                       beyond it: late ranks, whatever made them late
                                          mean        latest

Below the line the two are told apart by training on resident tensors, which fetches nothing. The base case reads
data, too, and what it waits for input is a part of the ideal step already. So only the growth is lost by scaling:

    input stall  = (mean - resident) of N ranks  -  (ideal - resident) of 1 rank, at the same local batch
    co-running   = resident of N ranks  -  resident of 1 rank, at the same local batch

`efficiency.input_stall` has the whole of it, as a share of a step. A stair whose control was not measured is not
guessed: its part and the next one stand as one, with both names.

`gather` finds the launches that are a cell's controls; `Levels` are the heights that they measured block by block,
from which the interval of a part is estimated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from dlscale.analysis.families import base_cell
from dlscale.analysis.records import MIN_COVERED, Block, CellTimes, Seconds
from dlscale.analysis.statistics import INSUFFICIENT, LEVEL, MIN_BLOCKS, Interval
from dlscale.benchmarks.records.record import Cell

BATCH, CO_RUNNING, INPUT = "batch effect", "co-running", "input stall"
LATE, EXPOSED = "late ranks", "exposed communication"
NAMES = (BATCH, CO_RUNNING, INPUT, LATE, EXPOSED)  # in the order of the staircase

# "..._resident" is the same on tensors in memory; "resident" that of N ranks. Seconds per step.
Level = Literal[
    "ideal", "ideal_resident", "alone", "alone_resident", "resident", "mean", "latest", "measured"
]
Terms = dict[Level, int]  # a sum of levels, each with its factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Stair:
    """A part of the loss, or several that the controls do not tell apart, as a sum of measured levels."""

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
        # With a control of the batch but none of its input, it is not known in which of two stairs that lies.
        apart = _input_known(known) and (not strong or "alone" not in known or _resident_known(known))
        resident: Terms | None = {"ideal": 1, "ideal_resident": -1, "resident": 1} if apart else None
        landings += [(CO_RUNNING, resident), (INPUT, {"mean": 1})]
    else:
        landings.append((CO_RUNNING, {"mean": 1}))
    landings.append((LATE, {"latest": 1} if together and "latest" in known else None))
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
class Levels:
    """Seconds per step of each level, block by block.

    `near`: of the blocks in which "measured", one of these levels, was launched. `far`: of other blocks, if the base
    case shares none with it; else empty.
    """

    near: Mapping[Level, Seconds]
    far: Mapping[Level, Seconds]

    @property
    def known(self) -> frozenset[Level]:
        """Those that have values."""
        return frozenset((*self.near, *self.far))

    def typical(self, level: Level) -> float:
        """The geometric mean over blocks, seconds."""
        values = self.near[level] if level in self.near else self.far[level]
        return float(np.exp(np.log(values).mean()))

    def by_block(self, terms: Terms) -> Seconds:
        """The sum in each block, as a share of the measured step. Raises KeyError if a level is far."""
        total = sum(factor * self.near[level] for level, factor in terms.items())
        return np.asarray(total / self.near["measured"], np.float64)

    def share(self, terms: Terms, *, level: float = LEVEL) -> Interval:
        """The sum as a share of the measured step.

        The centre is the sum of the levels' ratios to the measured step, each that of geometric means, as
        `statistics.block_ratio` has them; so centres add up as the terms do. The interval is the t interval of its
        terms by block, to first order (`statistics.block_difference` is the case of two terms): what drifts from block
        to block cancels. With far levels it is Welch's, and labelled unpaired.
        """
        weights = {
            name: factor * self.typical(name) / self.typical("measured") for name, factor in terms.items()
        }
        center = math.fsum(weights.values())
        measured = np.log(self.near["measured"])
        near, far = np.zeros(len(measured)), np.zeros(0)
        for name, weight in weights.items():
            if name in self.near:
                near = near + weight * (np.log(self.near[name]) - measured)
            else:
                near = near - weight * measured
                far = (far if len(far) else 0.0) + weight * np.log(self.far[name])
        return _t_interval(center, [near, far] if len(far) else [near], level=level)


def _t_interval(center: float, groups: list[Seconds], *, level: float) -> Interval:
    """Around `center`, from the spread of the mean of each independent group."""
    n, unpaired = min(map(len, groups)), len(groups) > 1
    if n < MIN_BLOCKS:
        method = f"{INSUFFICIENT}, unpaired" if unpaired else INSUFFICIENT
        return Interval(center=center, low=None, high=None, level=level, method=method, n=n)
    variances = [float(group.var(ddof=1)) / len(group) for group in groups]
    spread = sum(one**2 / (len(group) - 1) for one, group in zip(variances, groups, strict=True))
    freedom = sum(variances) ** 2 / spread if spread else n - 1.0  # Welch-Satterthwaite; n - 1 for one group
    half = float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(sum(variances))
    return Interval(
        center=center,
        low=center - half,
        high=center + half,
        level=level,
        method="unpaired t" if unpaired else "paired t",
        n=n,
    )


ByBlock = Mapping[Block, float]
# A training on 1 rank is a control of the batch, too, where its local batch happens to be the right one.
ALONE = {"alone", "train"}
BASE_LEVELS = "base case (a), none on 1 rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The levels of one cell in the blocks that they have in common; None, and why, if there are none."""

    levels: Levels | None
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""


def gather(mine: CellTimes, others: Sequence[CellTimes]) -> Gathered:
    """Everything that was measured for the waterfall of `mine`, a training over a backend on N ranks."""
    others = [one for one in others if one.family.system == mine.family.system]
    family = [one for one in others if one.family == mine.family]
    crowd = _crowd(mine, family)
    if crowd is None:
        return Gathered(levels=None, reason=f"none on {mine.cell.num_ranks} ranks was not measured")
    base = base_cell(mine.cell, [one.cell for one in family], same_backend=False)
    ideal = base and _launches_of(family, base, mine.evidence)
    if not ideal:
        return Gathered(levels=None, reason=f"no {BASE_LEVELS}: not measured")
    blocks = [block for block in sorted(mine.times) if block in crowd.times]
    if not blocks:
        return Gathered(levels=None, reason=f"no block in common with none on {mine.cell.num_ranks} ranks")
    notes = []
    if ideal.evidence != mine.evidence:
        notes.append(f"{BASE_LEVELS}, is {ideal.evidence}, not {mine.evidence}")
    needed, optional = _beside(mine, crowd, ideal, others)
    base_levels = _base(mine, ideal, others)
    far: dict[Level, Seconds] = {}
    if any(block in ideal.times for block in blocks):
        needed["ideal"] = base_levels.pop("ideal")
        optional |= base_levels
    else:
        far, _ = _common({"ideal": base_levels.pop("ideal")}, base_levels, sorted(ideal.times))
        notes.append(f"unpaired with {BASE_LEVELS}: no common block")
    near, common = _common(needed, optional, blocks)
    if left_out := len(mine.times) - len(common):
        notes.append(f"{left_out} of {len(mine.times)} blocks left out: a control is missing there")
    notes += _of_stamps(crowd)
    levels = Levels(near=near, far=far)
    return Gathered(levels=levels, blocks=tuple(common), notes=tuple(notes))


def _crowd(mine: CellTimes, family: Iterable[CellTimes]) -> CellTimes | None:
    """`none` on as many ranks, if possible on as many nodes: servers may need some more."""
    cell = mine.cell
    found = [
        one
        for one in family
        if (one.cell.backend, one.cell.control, one.cell.num_ranks) == ("none", "train", cell.num_ranks)
    ]

    def unlike(one: CellTimes) -> tuple[object, ...]:
        nodes = one.cell.num_nodes
        return one.evidence != mine.evidence, one.evidence, nodes != cell.num_nodes, nodes

    return min(found, key=unlike, default=None)


def _beside(
    mine: CellTimes, crowd: CellTimes, ideal: CellTimes, others: Sequence[CellTimes]
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


def _base(mine: CellTimes, ideal: CellTimes, others: Sequence[CellTimes]) -> dict[Level, ByBlock]:
    """The base case's levels, for as many samples as a rank of `mine` trains on."""
    factor = mine.cell.local_batch / ideal.cell.local_batch
    found: dict[Level, ByBlock] = {"ideal": _scaled(ideal.seconds("world"), factor)}
    if resident := _resident(ideal, others):
        found["ideal_resident"] = _scaled(resident.seconds("world"), factor)
    return found


def _resident(one: CellTimes, others: Iterable[CellTimes]) -> CellTimes | None:
    """The same on tensors in memory, beside it in its launches."""
    return _launches_of(others, one.cell.model_copy(update={"control": "synthetic"}), one.evidence)


def _alone(mine: CellTimes, ideal: CellTimes, others: Iterable[CellTimes]) -> dict[Level, ByBlock]:
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


def _launches_of(some: Iterable[CellTimes], cell: Cell, evidence: str) -> CellTimes | None:
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


def _of_stamps(crowd: CellTimes) -> list[str]:
    shares = [times.covered for times in crowd.times.values() if times.covered is not None]
    if not shares or min(shares) >= MIN_COVERED:
        return []
    return [
        f"the stamps of none on {crowd.cell.num_ranks} ranks add up to {100 * min(shares):.0f} % of its windows: the "
        "length of steps is taken from the windows, only how much ranks differ from the stamps"
    ]


def _scaled(seconds: ByBlock, factor: float) -> ByBlock:
    return {block: value * factor for block, value in seconds.items()}
