"""Waterfalls: the parts of the loss of a training over a backend on N ranks.

The loss is 1 - efficiency against base case (a), 1 rank without a communication layer. Parts are shares of the measured
step, which makes them percents of the ideal speed: with the ideal step i and the measured step m, the loss is
1 - i / m = (m - i) / m. They add up to the loss in each block and in their centres (`waterfall_parts.py`).
docs/metrics.md explains the metrics. The arithmetic comes first, then the columns, the sentences and the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.families import Family
from dlscale.analysis.findings.waterfall_parts import (
    BATCH,
    EXPOSED,
    STRAGGLERS,
    Level,
    Levels,
    Stair,
    difference,
    gather,
    staircase,
)
from dlscale.analysis.launches import Block, CellLaunches, good_launches
from dlscale.analysis.records import options_text
from dlscale.analysis.render.tables import (
    Column,
    TableOf,
    cell_name,
    render_table,
    shown_interval,
    tags_of,
    training_columns,
    workload_title,
)
from dlscale.analysis.render.text import backend_name, interval_columns, number, percent, points, share_text
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval, block_ratio
from dlscale.benchmarks.records.record import Cell

TRAINING_CONTROLS = {"train", "synthetic", "alone"}  # controls that measure training steps
SYNTHETIC = "synthetic"  # the data of a study that reads no samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The loss by one cause, or by several that the controls do not separate; negative for a gain."""

    names: tuple[str, ...]
    name: str
    loss: Interval  # of the ideal speed, as a fraction
    seconds: Interval  # of a step: the loss times the measured step


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """The parts of the loss of one cell. Without parts `reason` says what is missing.

    `rivals` are the parts that do not differ significantly from the largest one.
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
    everything = good_launches(measured, controls=TRAINING_CONTROLS)
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
    """The efficiency of the table: ideal over measured seconds per step, paired by block if there is a common one."""
    ideal = levels.far["ideal"] if levels.far else levels.near["ideal"]
    measured = levels.near["measured"]
    first = len(measured) if levels.far else 0  # different blocks get different numbers
    return block_ratio(
        {first + index: value for index, value in enumerate(ideal.tolist())},
        dict(enumerate(measured.tolist())),
    )


def _rivals(stairs: Sequence[Stair], parts: Sequence[Part], levels: Levels) -> tuple[str, ...]:
    """The parts whose difference to the largest one may be 0, corrected for all comparisons (Bonferroni).

    There are two parts at least: what happens within `none` and what the backend adds.
    """
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


def _waterfall_order(waterfall: Waterfall) -> tuple[object, ...]:
    cell = waterfall.cell
    options = tuple(sorted((name, str(value)) for name, value in cell.backend_options.items()))
    ranks = (cell.num_ranks, cell.num_servers, cell.num_nodes)
    return (waterfall.family, cell.backend, options, *ranks, waterfall.evidence)


def waterfall_rows(falls: Iterable[Waterfall]) -> list[dict[str, Any]]:
    """One flat row per part, in the order of the staircase; for a cell without parts one row with `reason`.

    `loss` is a part's share of the ideal speed, `seconds` its share of a step; over the rows of a cell they add up to
    1 - `efficiency` and to `measured_seconds` - `ideal_seconds`.
    """
    return [row for waterfall in falls for row in _part_rows(waterfall)]


def waterfall_block_rows(falls: Iterable[Waterfall]) -> list[dict[str, Any]]:
    """One flat row per part and block, from which the intervals are computed. None for unpaired waterfalls."""
    return [
        {**_setting(waterfall), "study": study, "block": block, **name_columns(part.name), "loss": loss}
        for waterfall in falls
        for (study, block), losses in waterfall.by_block
        for part, loss in zip(waterfall.parts, losses, strict=True)
    ]


def name_columns(name: str | None) -> dict[str, str | None]:
    """The columns `part`, with the names of schema 1, where stragglers were late ranks, and `cause`, as shown."""
    return {"part": name and name.replace(STRAGGLERS, "late ranks"), "cause": name}


def _part_rows(waterfall: Waterfall) -> list[dict[str, Any]]:
    common = {
        **_setting(waterfall),
        **interval_columns("efficiency", waterfall.efficiency),
        "ideal_seconds": waterfall.ideal_seconds,
        "measured_seconds": waterfall.measured_seconds,
    }
    about = {"notes": "; ".join(waterfall.notes), "reason": waterfall.reason or None}
    if not waterfall.parts:
        return [
            {
                **common,
                **name_columns(None),
                **interval_columns("loss", None),
                **interval_columns("seconds", None),
                **about,
            }
        ]
    return [
        {
            **common,
            **name_columns(part.name),
            **interval_columns("loss", part.loss),
            **interval_columns("seconds", part.seconds),
            **about,
        }
        for part in waterfall.parts
    ]


def _setting(waterfall: Waterfall) -> dict[str, Any]:
    """The columns that name what was run and on which system."""
    return {
        "system": waterfall.family.system,
        **waterfall.cell.model_dump(exclude={"control"}),
        "backend_options": options_text(waterfall.cell),
        "evidence": waterfall.evidence,
    }


def waterfall_headline(waterfall: Waterfall) -> str:
    """`resnet50 on ring: scaling efficiency 93 % [91, 95] at 8 ranks; the largest loss is stragglers: ...`"""
    subject = f"{waterfall.cell.workload} on {backend_name(waterfall.cell)}"
    if waterfall.evidence != "measured":
        subject += f" ({waterfall.evidence})"
    ranks = f"{waterfall.cell.num_ranks} ranks"
    if waterfall.efficiency is None:
        return f"{subject} at {ranks}: the loss is unknown, {waterfall.reason}."
    unpaired = ", unpaired" if "unpaired" in waterfall.efficiency.method else ""
    kept = f"{subject}: scaling efficiency {percent(waterfall.efficiency)} at {ranks}{unpaired}"
    if not waterfall.sufficient:
        num_blocks = waterfall.efficiency.n
        return f"{kept}; insufficient data for causes: {num_blocks} of {MIN_BLOCKS} blocks."
    return f"{kept}; {_why(waterfall)}."


def _why(waterfall: Waterfall) -> str:
    certain = [part for part in waterfall.parts if part.loss.low is not None and part.loss.low > 0]
    largest = max(waterfall.parts, key=lambda part: part.loss.center)
    if not certain and waterfall.loss and waterfall.loss.low is not None and waterfall.loss.low > 0:
        return f"no single cause is significant; the largest is {largest.name}: {share_text(largest.loss)}"
    if not certain:
        return "no loss is significant"
    rivals = [part for part in waterfall.parts if part.name in waterfall.rivals]
    if not rivals:
        return f"the largest loss is {largest.name}: {share_text(largest.loss)}"
    parts = sorted([largest, *rivals], key=lambda part: -part.loss.center)
    listed = "; ".join(f"{part.name} {share_text(part.loss)}" for part in parts)
    return f"the largest losses cannot be separated statistically: {listed}"


def part_sentence(part: Part) -> str:
    """`stragglers: 1.2 % [0.9, 1.5] of the ideal speed, 0.25 ms of a step.`"""
    milliseconds = number(round(1000 * part.seconds.center, 6))
    return f"{part.name}: {share_text(part.loss)} of the ideal speed, {milliseconds} ms of a step."


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRow:
    """A part of a waterfall, or its total loss; `largest` marks the parts that no other certainly exceeds."""

    waterfall: Waterfall
    label: str
    loss: Interval
    milliseconds: Interval  # per step
    largest: bool = False


def loss_rows(falls: Iterable[Waterfall]) -> Iterator[LossRow]:
    """The rows of the table: the parts of each waterfall and their total; waterfalls without parts are left out."""
    for waterfall in falls:
        if not waterfall.parts or waterfall.loss is None:
            continue
        for part in waterfall.parts:
            yield LossRow(
                waterfall=waterfall,
                label=part.name,
                loss=part.loss,
                milliseconds=part.seconds.times(1000),
                largest=part.name in waterfall.largest_names,
            )
        milliseconds = replace(
            waterfall.loss,
            center=sum(1000 * part.seconds.center for part in waterfall.parts),
            low=None,
            high=None,
            method="sum of the parts",
        )
        yield LossRow(waterfall=waterfall, label="in total", loss=waterfall.loss, milliseconds=milliseconds)


def _loss_data(row: LossRow) -> dict[str, Any]:
    cell, family, milliseconds = row.waterfall.cell, row.waterfall.family, row.milliseconds
    return {
        "training": f"{workload_title(family.workload)} {family.preset}, {family.framework}, "
        f"{family.scaling_mode} scaling on {family.system}",
        "workload": cell.workload,
        "framework": cell.framework,
        "backend": backend_name(cell),
        "num_ranks": cell.num_ranks,
        "evidence": row.waterfall.evidence,
        **name_columns(row.label),
        "share": row.loss.center,
        "share_low": row.loss.low,
        "share_high": row.loss.high,
        "method": row.loss.method,
        "n": row.loss.n,
        "milliseconds_per_step": milliseconds.center,
        "milliseconds_low": milliseconds.low,
        "milliseconds_high": milliseconds.high,
    }


def _three_digits(milliseconds: float) -> str:
    """Milliseconds as text with three digits, never -0."""
    return number(round(milliseconds, 4) + 0.0)


WATERFALL_LEGEND = (
    "Parts of the loss, in percent of the ideal speed, which is that of 1 rank without a communication layer, with "
    f"{100 * LEVEL:.0f} % t intervals over n blocks of launches; together they are what is lost. Batch effect: the "
    "local batch is smaller. Co-running: ranks share the machine. Input stall: by how much longer ranks wait for "
    "samples than 1 rank. Late ranks: every step waits for its latest one. Exposed communication: the rest."
)
LOSSES = TableOf[LossRow](
    name="losses",
    caption="Parts of the loss",
    columns=(
        *training_columns(lambda row: row.waterfall.family),
        Column("backend", lambda row: cell_name(row.waterfall.cell, row.waterfall.evidence), numeric=False),
        Column("ranks", lambda row: row.waterfall.cell.num_ranks),
        Column("part", lambda row: row.label, numeric=False),
        Column("lost", lambda row: shown_interval(row.loss, points), unit="%"),
        Column("per step", lambda row: shown_interval(row.milliseconds, _three_digits), unit="ms"),
        Column("n", lambda row: row.loss.n),
    ),
    data=_loss_data,
    legend=WATERFALL_LEGEND,
    tags=lambda row: tags_of(row.waterfall.cell),
    strong=lambda row: row.largest,
    group=lambda row: (row.waterfall.cell.id, row.waterfall.evidence),
)


def render_waterfalls(falls: Iterable[Waterfall]) -> Iterator[RenderableType]:
    """The table and sentences for the waterfalls of one family; nothing without any."""
    falls = list(falls)
    if not falls:
        return
    yield "[bold]Where the speed goes[/bold]"
    largest = [_largest(group) for group in _by_backend(falls)]
    yield from render_table(LOSSES.of(loss_rows(largest)), caption=False, legend=False)
    notes: dict[str, None] = {}
    for waterfall in falls:
        yield escape(waterfall_headline(waterfall))
        notes |= dict.fromkeys(waterfall.notes)
    for note in notes:
        yield f"[dim]{escape(note)}.[/dim]"
    yield ""


def _by_backend(falls: Sequence[Waterfall]) -> Iterator[list[Waterfall]]:
    for _, group in groupby(falls, key=lambda waterfall: (backend_name(waterfall.cell), waterfall.evidence)):
        yield list(group)


def _largest(falls: Sequence[Waterfall]) -> Waterfall:
    """The waterfall of the most ranks, preferably one with parts."""
    return max(falls, key=lambda waterfall: (bool(waterfall.parts), waterfall.cell.num_ranks))
