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

`gather` finds the launches that are a cell's controls; `Levels` are the heights that they measured, block by block,
from which the interval of a part is estimated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dlscale.analysis.families import base_cell
from dlscale.analysis.launches import Block, CellLaunches
from dlscale.analysis.records import Seconds
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval, block_ratio, t_interval
from dlscale.benchmarks.records.record import Cell, Control

BATCH, CO_RUNNING, INPUT = "batch effect", "co-running", "input stall"
STRAGGLERS, EXPOSED = "stragglers", "exposed communication"
NAMES = (BATCH, CO_RUNNING, INPUT, STRAGGLERS, EXPOSED)  # in the order of the staircase

# "..._resident" is the same level on tensors in memory; "resident" is that of N ranks. Seconds per step.
Level = Literal[
    "ideal", "ideal_resident", "alone", "alone_resident", "resident", "mean", "latest", "measured"
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
    block with "measured"; else empty. `bound`: that of the input stall, if fetching alone was measured.
    """

    near: Mapping[Level, Seconds]
    far: Mapping[Level, Seconds]
    bound: InputBound | None = None

    @property
    def known(self) -> frozenset[Level]:
        """The levels that have values."""
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

        The centre is the sum of the levels' ratios to the measured step, each of geometric means, as in
        `statistics.block_ratio`; so centres add up as the terms do. The interval is the t interval of its terms by
        block, to first order (`statistics.block_difference` is the case of two terms): drift from block to block
        cancels. With far levels it is Welch's, and labelled unpaired.
        """
        weights = {
            name: factor * self.typical(name) / self.typical("measured") for name, factor in terms.items()
        }
        center = math.fsum(weights.values())
        measured = np.log(self.near["measured"])
        near = {name: np.log(values) - measured for name, values in self.near.items()}
        far = {name: np.log(values) for name, values in self.far.items()}
        sums = [sum(weight * near.get(name, -measured) for name, weight in weights.items())]
        if weights.keys() & far.keys():
            sums.append(sum(weight * far[name] for name, weight in weights.items() if name in far))
        groups = [np.asarray(logs, np.float64) for logs in sums]
        return t_interval(center, groups, level=level)

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
    blocks = [block for block in measured_by_block if block in crowd.by_block("world")]
    if not blocks:
        return Gathered(levels=None, reason=f"no block in common with none on {mine.cell.num_ranks} ranks")
    notes = []
    if ideal.evidence != mine.evidence:
        notes.append(f"{BASE_LEVELS}, is {ideal.evidence}, not {mine.evidence}")
    needed, optional = _beside(mine, crowd, ideal, measured)
    base_levels = _base(mine, ideal, measured)
    far: dict[Level, Seconds] = {}
    if any(block in ideal_by_block for block in blocks):
        needed["ideal"] = base_levels.pop("ideal")
        optional |= base_levels
    else:
        far, _ = _common({"ideal": base_levels.pop("ideal")}, base_levels, list(ideal_by_block))
        notes.append(f"unpaired with {BASE_LEVELS}: no common block")
    near, common = _common(needed, optional, blocks)
    if left_out := len(mine.cases) - len(common):
        paused = any(case.part > 1 for launches in measured for case in launches.cases)
        why = "a control is missing there" + (" or ran before or after a pause" if paused else "")
        notes.append(f"{left_out} of {len(mine.cases)} blocks left out: {why}")
    notes += _of_stamps(crowd)
    levels = Levels(near=near, far=far, bound=_input_bound(mine, crowd, ideal, measured))
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


def _scaled(seconds: ByBlock, factor: float) -> ByBlock:
    return {block: value * factor for block, value in seconds.items()}
