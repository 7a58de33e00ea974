"""Waterfalls: the parts of the loss of a training over a backend on N ranks.

The loss is 1 - efficiency against base case (a), 1 rank without a communication layer. Parts are shares of the measured
step, which makes them percents of the ideal speed: with the ideal step i and the measured step m, the loss is
1 - i / m = (m - i) / m. They add up to the loss in each block and in their centres (`waterfall_parts.py`).
docs/metrics.md explains the metrics; `waterfall_table` has the rows, the sentences and the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlscale.analysis.families import Family
from dlscale.analysis.findings.waterfall_controls import gather
from dlscale.analysis.findings.waterfall_parts import (
    BATCH,
    EXPOSED,
    INPUT,
    STRAGGLERS,
    InputBound,
    Level,
    Levels,
    Stair,
    difference,
    staircase,
)
from dlscale.analysis.launches import Block, CellLaunches, good_launches
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval, half_width
from dlscale.analysis.text import points
from dlscale.benchmarks.records.record import Cell

LEVEL_CONTROLS = {"train", "synthetic", "loader", "alone"}  # controls that measure a level or bound one
SYNTHETIC = "synthetic"  # the data of a study that reads no samples
MOST_LAUNCHES = 99  # beyond that, nobody repeats them to separate two losses
LEAD_LEVEL = 1 - 2 * (1 - LEVEL)  # of a two-sided interval whose lower limit holds with 95 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The loss by one cause, or by several that the controls do not separate; negative for a gain."""

    names: tuple[str, ...]
    name: str
    loss: Interval  # of the ideal speed, as a fraction
    seconds: Interval  # of a step: the loss times the measured step
    by_controls: float  # the loss before the bound of the input stall


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """The parts of the loss of one cell. Without parts `reason` says what is missing.

    `rivals` are the losses that the largest one does not exceed significantly. A part below 0 is a gain and never among
    them; the largest loss is `separated` if it exceeds all parts significantly, gains too.
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
    separated: bool = False
    # About so many would separate the largest loss; None if it is separated, or if too many would be needed.
    launches_needed: int | None = None
    bound: InputBound | None = None  # of the input stall
    by_block: tuple[tuple[Block, tuple[float, ...]], ...] = ()  # each part's loss; empty if unpaired
    notes: tuple[str, ...] = ()
    reason: str = ""

    @property
    def largest(self) -> Part | None:
        """The part with the largest loss."""
        return max(self.parts, key=lambda part: part.loss.center, default=None)

    @property
    def largest_names(self) -> tuple[str, ...]:
        """The names of the largest part and its rivals; none if no loss is certain."""
        certain = any(part.loss.low is not None and part.loss.low > 0 for part in self.parts)
        return (self.largest.name, *self.rivals) if self.largest and certain else ()

    @property
    def sufficient(self) -> bool:
        """Whether there are enough blocks for intervals."""
        return self.loss is not None and self.loss.low is not None


def waterfalls(measured: Iterable[CellLaunches]) -> tuple[Waterfall, ...]:
    """A waterfall for each training over a backend on more than 1 rank with a number, by family and ranks."""
    everything = good_launches(measured, controls=LEVEL_CONTROLS)
    falls = [
        _waterfall(launches, everything)
        for launches in everything
        if launches.cell.control == "train"
        and launches.cell.backend != "none"
        and launches.cell.num_ranks > 1
    ]
    return tuple(sorted(falls, key=_waterfall_order))


def _waterfall(mine: CellLaunches, everything: Sequence[CellLaunches]) -> Waterfall:
    gathered = gather(mine, everything)
    levels = gathered.levels
    if levels is None:
        return Waterfall(cell=mine.cell, family=mine.family, evidence=mine.evidence, reason=gathered.reason)
    strong, reads = mine.cell.scaling_mode == "strong", mine.cell.data != SYNTHETIC
    stairs = staircase(levels.known, strong=strong, reads=reads, together=mine.together)
    measured = levels.typical("measured")
    efficiency = levels.efficiency()
    parts = tuple(_part(stair, levels, measured) for stair in stairs)
    rivals = not_exceeded(stairs, levels)
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
        rivals=tuple(part.name for part in parts if part.name in rivals and part.loss.center > 0),
        separated=not rivals,
        launches_needed=launches_to_separate(_leads(stairs, levels).values()) if rivals else None,
        bound=levels.bound,
        by_block=tuple(zip(gathered.blocks, blocks, strict=False)),
        notes=(
            *gathered.notes,
            *_merged(stairs, levels.known, strong=strong, mine=mine),
            *_bounded(parts),
        ),
    )


def _part(stair: Stair, levels: Levels, measured: float) -> Part:
    loss = levels.bounded_share(stair.terms)
    return Part(
        names=stair.names,
        name=stair.name,
        loss=loss,
        seconds=loss.times(measured),
        by_controls=levels.share(stair.terms).center,
    )


def not_exceeded(stairs: Sequence[Stair], levels: Levels) -> tuple[str, ...]:
    """The names of the parts that the one with the largest centre does not exceed significantly.

    Its lead over each other part is tested at one-sided 5 %, and it is called the largest only if all tests agree. To
    be wrong, a part must be shown to exceed the truly largest one, which happens in at most 5 % of studies. So there is
    no correction for the number of parts: it would only cost power (Gutmann and Maymin 1987; Hung and Fithian 2019).
    tests/benchmark/coverage.py simulates how often the right and a wrong part are named.
    """
    leads = _leads(stairs, levels)
    return tuple(name for name, lead in leads.items() if lead.low is None or lead.low <= 0)


def _leads(stairs: Sequence[Stair], levels: Levels) -> dict[str, Interval]:
    """By how much the part with the largest centre exceeds each other one."""
    centers = [levels.bounded_share(stair.terms).center for stair in stairs]
    largest = stairs[centers.index(max(centers))]
    return {
        stair.name: levels.bounded_share(difference(largest.terms, stair.terms), level=LEAD_LEVEL)
        for stair in stairs
        if stair is not largest
    }


def launches_to_separate(leads: Iterable[Interval]) -> int | None:
    """About how many launches show that all leads are above 0, if leads and their noise stay what they are.

    None if that takes more than 99, or there is no interval to tell the noise from.
    """
    most = 0
    for lead in leads:
        if lead.low is None or lead.center <= 0:
            return None
        spread = (lead.center - lead.low) / half_width(lead.n, level=LEAD_LEVEL)
        enough = (
            number
            for number in range(MIN_BLOCKS, MOST_LAUNCHES + 1)
            if spread * half_width(number, level=LEAD_LEVEL) < lead.center
        )
        needed = next(enough, None)
        if needed is None:
            return None
        most = max(most, needed)
    return most


def _merged(
    stairs: Sequence[Stair], known: frozenset[Level], *, strong: bool, mine: CellLaunches
) -> Iterator[str]:
    """The reasons why parts are merged: the controls that are missing to separate them."""
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
    if {STRAGGLERS, EXPOSED} <= joined:
        yield (
            f"steps of none on {ranks} have no stamps"
            if mine.together
            else "ranks do not wait for each other"
        )


def _bounded(parts: Sequence[Part]) -> Iterator[str]:
    """What was measured of an input stall outside of its bound."""
    for part in parts:
        if part.names == (INPUT,) and abs(part.by_controls - part.loss.center) > 1e-12:
            yield (
                f"{INPUT} bounded to {points(part.loss.center)} % (measured fetch time); the controls differ by "
                f"{points(part.by_controls)} %, and the rest is counted in the part above it"
            )


def _waterfall_order(waterfall: Waterfall) -> tuple[object, ...]:
    cell = waterfall.cell
    options = tuple(sorted((name, str(value)) for name, value in cell.options.items()))
    ranks = (cell.num_ranks, cell.num_servers, cell.num_nodes)
    return (waterfall.family, cell.method, options, *ranks, waterfall.evidence)
