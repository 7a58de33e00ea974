"""The parts of a waterfall: those that the measured controls separate, and which of them is the largest.

The loss is 1 - efficiency against 1 rank without communication. Parts are shares of the measured
step, which makes them percents of the ideal speed: with the ideal step i and the measured step m, the loss is
1 - i / m = (m - i) / m. They add up to the loss in each block and in their centres. docs/metrics.md explains them.

Levels form a staircase, in seconds per step; every part is the height of one stair, so the parts add up to the loss:

    ideal      1 rank of `none`, per sample, times the local batch of N ranks
      | batch effect            the local batch is smaller than the base case's (strong scaling only)
    alone      1 rank of `none` at the local batch of N ranks
      | thin blocks             rows of a sample take longer than their share of it (samples that ranks share only)
    thin       1 rank of `none` at that batch, with the rows of one of N ranks
      | sharing the machine     N ranks share memory, caches and power, and compute more slowly
      | input stall             N ranks wait longer for their samples than 1 rank does
    mean       N ranks of `none`: the average rank's step
      | stragglers              every step has a latest rank, and all others wait for it
    latest     N ranks of `none`: mean over steps of the latest rank's
      | communication and waiting   the rest
    gathered   N ranks over the backend, less what the last rank to come spends in gathers (sharded weights only)
      | gathering weights
    haloed     likewise, less what the last rank to come spends in exchanging rows (samples that ranks share only)
      | halo exchange
    measured   N ranks over the backend

Stragglers and the input stall both occur in `none` on N ranks, where no rank waits for another. They are separated at
the average rank's step, so that no time counts twice:

    rank 0  |---- computes ----|~ input ~|                         below the line: what the average rank does,
    rank 1  |------- computes -------|~~~~~ input ~~~~~|           computing (sharing the machine) and fetching;
    rank 2  |---- computes ----|~~ input ~~|                       beyond it: stragglers, whatever made them late
                                          mean        latest

Below the line, training on resident tensors, which fetches nothing, separates computing from fetching. The base case
reads data, too, and its input stall is part of the ideal step. So only the increase is lost by scaling:

    input stall          = (mean - resident) of N ranks  -  (ideal - resident) of 1 rank, at the same local batch
    sharing the machine  = resident of N ranks  -  resident of 1 rank, at the same local batch

`metrics.input_stall` is the whole stall, as a share of a step. If the control of a stair was not measured, its part is
not guessed but merged with the next one, under both names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from dlscale.analysis.families import Family, curve_order
from dlscale.analysis.findings.waterfall_levels import InputBound, Level, Levels, Terms, difference, gather
from dlscale.analysis.launches import Block, CellLaunches, good_launches
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval, half_width
from dlscale.analysis.text import points
from dlscale.benchmarks.records.cell import Cell

BATCH, THIN, SHARING, INPUT = "batch effect", "thin blocks", "sharing the machine", "input stall"
STRAGGLERS, WAITING = "stragglers", "communication and waiting"
GATHERING, HALOS = "gathering weights", "halo exchange"
NAMES = (BATCH, THIN, SHARING, INPUT, STRAGGLERS, WAITING, GATHERING, HALOS)  # in the order of the staircase
# What JSON of schema 1 and files of predictions call them.
FIRST_NAMES = {SHARING: "co-running", STRAGGLERS: "late ranks", WAITING: "exposed communication"}
LEVEL_CONTROLS = {"train", "synthetic", "loader", "alone"}  # controls that measure a level or bound one
SYNTHETIC = "synthetic"  # the data of a study that reads no samples
MOST_LAUNCHES = 99  # beyond that, nobody repeats them to separate two losses
LEAD_LEVEL = 1 - 2 * (1 - LEVEL)  # of a two-sided interval whose lower limit holds with 95 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Stair:
    """A part of the loss, or several that the controls do not separate, as a sum of measured levels."""

    names: tuple[str, ...]
    terms: Terms

    @property
    def name(self) -> str:
        return part_name(self.names)


def part_name(names: Sequence[str]) -> str:
    """`input stall`, or `sharing the machine + input stall`: several that the controls do not separate."""
    return " + ".join(names)


def shown_name(first: str) -> str:
    """How a part is shown that a file of predictions calls `first`."""
    return next((name for name, known in FIRST_NAMES.items() if known == first), first)


def staircase(
    known: Set[Level], *, smaller: bool, reads: bool, together: bool, thin: bool = False
) -> tuple[Stair, ...]:
    """The parts that the known levels allow, from ideal to measured, which are always known.

    The local batch is a `smaller` one in strong scaling; where ranks share samples their blocks of rows are `thin`; a
    study that does not read data has no input stall; ranks that do not step `together` do not wait for each other. The
    terms add up to measured - ideal.
    """
    input_known = {"ideal_resident", "resident"} <= known
    landings: list[tuple[str, Terms | None]] = []  # where the stair of that name ends, if that level is known
    mean: Terms | None = {"mean": 1} if "mean" in known else None
    alone: list[tuple[str, Level, Level]] = []
    if smaller:
        alone.append((BATCH, "alone", "alone_resident"))
    if thin:
        alone.append((THIN, "thin", "thin_resident"))
    for name, level, in_memory in alone:
        after: Terms | None = {level: 1} if level in known else None
        if after and reads and input_known and in_memory in known:
            after = {"ideal": 1, "ideal_resident": -1, in_memory: 1}
        landings.append((name, after))
    if reads:
        # With a control of what 1 rank computes but not of its input, the input stall may be in either of two stairs.
        separate = input_known and all(level not in known or memory in known for _, level, memory in alone)
        resident: Terms | None = {"ideal": 1, "ideal_resident": -1, "resident": 1} if separate else None
        landings += [(SHARING, resident), (INPUT, mean)]
    else:
        landings.append((SHARING, mean))
    landings.append((STRAGGLERS, {"latest": 1} if together and "latest" in known else None))
    last: list[tuple[str, Level]] = [(WAITING, "measured")]
    if "gathered" in known:
        last = [(WAITING, "gathered"), (GATHERING, "measured")]
    if "haloed" in known:
        last = [(WAITING, "haloed"), (HALOS, "measured")]
    landings += [(name, {level: 1}) for name, level in last]
    stairs: list[Stair] = []
    names: list[str] = []
    below: Terms = {"ideal": 1}
    for name, landing in landings:
        names.append(name)
        if landing is not None:
            stairs.append(Stair(names=tuple(names), terms=difference(landing, below)))
            names, below = [], landing
    return tuple(stairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The loss by one cause, or by several that the controls do not separate; negative for a gain."""

    names: tuple[str, ...]
    name: str
    loss: Interval  # of the ideal speed, as a fraction
    seconds: Interval  # of a step: the loss times the measured step
    by_controls: float  # the loss before the bound of the input stall

    @property
    def bounded(self) -> bool:
        """Whether an input stall lies at its bound: controls differ by more than fetching samples takes."""
        return self.names == (INPUT,) and abs(self.by_controls - self.loss.center) > 1e-12

    @property
    def certain(self) -> bool:
        """Whether the loss is significant."""
        return is_loss(self.loss)


def is_loss(loss: Interval | None) -> bool:
    """Whether all of an interval is above 0."""
    return loss is not None and loss.low is not None and loss.low > 0


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
        certain = any(part.certain for part in self.parts)
        return (self.largest.name, *self.rivals) if self.largest and certain else ()

    @property
    def sufficient(self) -> bool:
        """Whether there are enough blocks for intervals."""
        return self.loss is not None and self.loss.low is not None


def waterfalls_of(measured: Iterable[CellLaunches]) -> tuple[Waterfall, ...]:
    """A waterfall for each training over a backend on more than 1 rank with a number, by family and ranks."""
    everything = good_launches(measured, controls=LEVEL_CONTROLS)
    found = [
        _waterfall(launches, everything)
        for launches in everything
        if launches.cell.control == "train"
        and launches.cell.backend != "none"
        and launches.cell.num_ranks > 1
    ]
    return tuple(sorted(found, key=lambda one: curve_order(one.family, one.cell, one.evidence)))


def _waterfall(mine: CellLaunches, everything: Sequence[CellLaunches]) -> Waterfall:
    levels = gather(mine, everything)
    if isinstance(levels, str):
        return Waterfall(cell=mine.cell, family=mine.family, evidence=mine.evidence, reason=levels)
    stairs = staircase(
        levels.known,
        smaller=_is_smaller(mine.cell),
        reads=mine.cell.data != SYNTHETIC,
        together=mine.together,
        thin=mine.cell.split > 1,
    )
    measured, efficiency = levels.typical("measured"), levels.efficiency()
    parts = tuple(_part(stair, levels, measured) for stair in stairs)
    rivals = not_exceeded(stairs, levels)
    by_block: tuple[tuple[Block, tuple[float, ...]], ...] = ()
    if not levels.far:
        columns = (levels.by_block(stair.terms).tolist() for stair in stairs)
        by_block = tuple(zip(levels.blocks, zip(*columns, strict=True), strict=True))
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
        by_block=by_block,
        notes=(*levels.notes, *_merged(stairs, levels.known, mine), *_bounded(parts)),
    )


def _is_smaller(cell: Cell) -> bool:
    """Whether its samples per step are fewer than the base case's."""
    return cell.scaling_mode == "strong" and cell.local_batch < cell.global_batch


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
    """
    return tuple(name for name, lead in _leads(stairs, levels).items() if not is_loss(lead))


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
        counts = range(MIN_BLOCKS, MOST_LAUNCHES + 1)
        enough = (n for n in counts if spread * half_width(n, level=LEAD_LEVEL) < lead.center)
        needed = next(enough, None)
        if needed is None:
            return None
        most = max(most, needed)
    return most


def _merged(stairs: Sequence[Stair], known: frozenset[Level], mine: CellLaunches) -> Iterator[str]:
    """The reasons why parts are merged: the controls that are missing to separate them."""
    joined = {name for stair in stairs if len(stair.names) > 1 for name in stair.names}
    if not joined:
        return
    ranks, smaller = f"{mine.cell.num_ranks} ranks", _is_smaller(mine.cell)
    if "mean" not in known:
        yield f"none on {ranks} was not measured with samples split {mine.cell.split} ways"
        return
    if smaller and BATCH in joined and "alone" not in known:
        yield f"1 rank at the local batch of {ranks} was not measured"
    if THIN in joined and "thin" not in known:
        yield f"1 rank with the rows of one of {ranks} was not measured"
    if {"ideal_resident", "resident"} - known and mine.cell.data != SYNTHETIC:
        yield f"resident data were not measured on 1 rank and on {ranks} of none in the same blocks"
    elif smaller and "alone" in known and "alone_resident" not in known and mine.cell.data != SYNTHETIC:
        yield f"resident data were not measured on 1 rank at the local batch of {ranks}"
    if {STRAGGLERS, WAITING} <= joined:
        lockstep = f"steps of none on {ranks} have no stamps"
        yield lockstep if mine.together else "ranks do not wait for each other"


def _bounded(parts: Sequence[Part]) -> Iterator[str]:
    """What was measured of an input stall outside of its bound."""
    for part in parts:
        if part.bounded:
            yield (
                f"{INPUT} bounded to {points(part.loss.center)} % (measured fetch time); the controls differ by "
                f"{points(part.by_controls)} %, and the rest is counted in the part above it"
            )
