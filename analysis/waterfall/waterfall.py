"""From records to waterfalls: every percent that a training over a backend loses on N ranks, and where it went.

The loss is that of efficiency against base case (a), 1 rank without a communication layer. Parts are shares of the
measured step, which makes them percents of the ideal speed: with the ideal step i and the measured step m, the speed
that is lost is 1 - i / m = (m - i) / m. They add up to the loss in each block and in their centres (`parts`, `levels`).
docs/metrics.md has the whole story.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlscale.analysis.family import Family
from dlscale.analysis.statistics import LEVEL, Interval, block_ratio
from dlscale.analysis.waterfall.gather import gather
from dlscale.analysis.waterfall.levels import Levels
from dlscale.analysis.waterfall.parts import BATCH, EXPOSED, LATE, Level, Stair, difference, staircase
from dlscale.analysis.waterfall.times import Block, Launched, launched
from dlscale.benchmarks.record import Cell, Record

SYNTHETIC = "synthetic"  # the data of a study that reads none


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one cause takes, or several that the controls do not tell apart; negative where it gave something."""

    names: tuple[str, ...]
    name: str
    loss: Interval  # of the ideal speed, as a fraction
    seconds: Interval  # of a step: the loss times the measured step


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """One cell. Without parts `reason` says what is missing.

    `rivals` are the parts that are not told apart from the largest one.
    """

    cell: Cell
    family: Family
    evidence: str
    efficiency: Interval | None = None
    loss: Interval | None = None  # 1 - efficiency
    ideal_seconds: float | None = None  # per step, geometric means over blocks
    measured_seconds: float | None = None
    parts: tuple[Part, ...] = ()
    rivals: tuple[str, ...] = ()
    by_block: tuple[tuple[Block, tuple[float, ...]], ...] = ()  # each part's loss; empty if unpaired
    notes: tuple[str, ...] = ()
    reason: str = ""

    @property
    def largest(self) -> Part | None:
        """The part that takes most."""
        return max(self.parts, key=lambda part: part.loss.center, default=None)

    @property
    def sufficient(self) -> bool:
        """Whether there are blocks enough for intervals."""
        return self.loss is not None and self.loss.low is not None


def waterfalls(records: Iterable[Record]) -> tuple[Waterfall, ...]:
    """One for each cell that trains over a backend on more than 1 rank and gave a number, by family and ranks."""
    everything = launched(records)
    found = [
        _waterfall(one, everything)
        for one in everything
        if one.cell.control == "train" and one.cell.backend != "none" and one.cell.num_ranks > 1
    ]
    return tuple(sorted(found, key=_order))


def _waterfall(mine: Launched, others: Sequence[Launched]) -> Waterfall:
    gathered = gather(mine, others)
    levels = gathered.levels
    if levels is None:
        return Waterfall(cell=mine.cell, family=mine.family, evidence=mine.evidence, reason=gathered.reason)
    strong, reads = mine.cell.scaling_mode == "strong", mine.cell.data != SYNTHETIC
    stairs = staircase(levels.known, strong=strong, reads=reads, together=mine.together)
    measured = levels.typical("measured")
    efficiency = _efficiency(levels)
    parts = tuple(_part(stair, levels, measured) for stair in stairs)
    blocks: Iterator[tuple[float, ...]] = iter(())
    if not levels.far:
        blocks = zip(*(levels.by_block(stair.terms).tolist() for stair in stairs), strict=True)
    return Waterfall(
        cell=mine.cell,
        family=mine.family,
        evidence=mine.evidence,
        efficiency=efficiency,
        loss=efficiency.complement(),
        ideal_seconds=efficiency.center * measured,
        measured_seconds=measured,
        parts=parts,
        rivals=_rivals(stairs, parts, levels),
        by_block=tuple(zip(gathered.blocks, blocks, strict=False)),
        notes=(*gathered.notes, *_merged(stairs, levels.known, strong=strong, mine=mine)),
    )


def _part(stair: Stair, levels: Levels, measured: float) -> Part:
    loss = levels.share(stair.terms)
    return Part(names=stair.names, name=stair.name, loss=loss, seconds=loss.times(measured))


def _efficiency(levels: Levels) -> Interval:
    """The table's: ideal over measured seconds per step, paired by block where there is a common one."""
    ideal = levels.far["ideal"] if levels.far else levels.near["ideal"]
    measured = levels.near["measured"]
    first = len(measured) if levels.far else 0  # other blocks have other numbers
    return block_ratio(
        {first + index: value for index, value in enumerate(ideal.tolist())},
        dict(enumerate(measured.tolist())),
    )


def _rivals(stairs: Sequence[Stair], parts: Sequence[Part], levels: Levels) -> tuple[str, ...]:
    """The parts whose difference to the largest one may be 0, all comparisons taken together (Bonferroni)."""
    if len(parts) < 2:
        return ()
    largest = max(range(len(parts)), key=lambda index: parts[index].loss.center)
    level = 1 - (1 - LEVEL) / (len(parts) - 1)
    rivals = []
    for index, part in enumerate(parts):
        if index != largest:
            ahead = levels.share(difference(stairs[largest].terms, stairs[index].terms), level=level)
            if ahead.low is None or ahead.low <= 0:
                rivals.append(part.name)
    return tuple(rivals)


def _merged(
    stairs: Sequence[Stair], known: frozenset[Level], *, strong: bool, mine: Launched
) -> Iterator[str]:
    """Why parts stand together, each with the control that would tell them apart."""
    joined = {name for stair in stairs if len(stair.names) > 1 for name in stair.names}
    if not joined:
        return
    ranks = f"{mine.cell.num_ranks} ranks"
    if strong and BATCH in joined and "alone" not in known:
        yield f"1 rank at the local batch of {ranks} was not measured"
    if {"ideal_resident", "resident"} - known and mine.cell.data != SYNTHETIC:
        yield f"resident data were not measured on 1 rank and on {ranks} of none in the same blocks"
    elif strong and "alone" in known and "alone_resident" not in known and mine.cell.data != SYNTHETIC:
        yield f"resident data were not measured on 1 rank at the local batch of {ranks}"
    if {LATE, EXPOSED} <= joined:
        yield (
            f"steps of none on {ranks} have no stamps"
            if mine.together
            else "ranks do not wait for each other"
        )


def _order(one: Waterfall) -> tuple[object, ...]:
    cell = one.cell
    options = tuple(sorted((name, str(value)) for name, value in cell.backend_options.items()))
    return (one.family, cell.backend, options, cell.num_ranks, cell.num_servers, cell.num_nodes, one.evidence)
