"""Compressed gradients against uncompressed ones: what they gain in speed and what they cost in quality, in one row.

A cell is compared with the uncompressed one of the same backend, ranks and other options. Trainings to a target pass
the accuracy gate if all of them reach it and, after as many samples, are at most `TOLERANCE` worse; studies of
throughput measure no quality, and say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dlscale.analysis.declare import Column, Sentence, TableOf, brief, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import PLACE_COLUMNS, Finding
from dlscale.analysis.findings.solutions import metric_name
from dlscale.analysis.findings.trainings import Training, metric_of, trainings_of
from dlscale.analysis.launches import CellLaunches, good_launches
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Block
from dlscale.analysis.records import attributes, wire_bytes, wire_share
from dlscale.analysis.statistics import LEVEL, Interval, block_ratio, t_interval
from dlscale.analysis.text import (
    cell_name,
    interval_columns,
    number,
    plural,
    ratio_text,
    share_text,
    size_text,
)
from dlscale.benchmarks.records.cell import Cell
from dlscale.collectives.compression.options import Compression

TOLERANCE = 0.01  # of the uncompressed training's metric, after as many samples
PASSED, FAILED, UNJUDGED = "passed", "failed", "not judged"

_OPTIONS = frozenset(field.name for field in fields(Compression))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedCell:
    """A compressed cell beside its uncompressed one; what is not known is None."""

    cell: Cell
    family: Family
    evidence: str
    reference: Cell | None  # the uncompressed one
    rate_ratio: Interval | None  # samples per second: this over the uncompressed one, paired by block
    wire_bytes: float | None  # that a rank sends per step
    wire_share: float | None  # of what an uncompressed step sends
    samples_ratio: Interval | None  # samples to the target: this over the uncompressed one, paired by seed
    quality_change: Interval | None  # of the metric after as many samples, relative; below 0 it is worse
    num_reached: int
    num_trainings: int  # 0 where the study has no target
    gate: str  # `PASSED`, `FAILED` or `UNJUDGED`
    why: str

    @property
    def text(self) -> str:
        """Gain and loss in one sentence, and the gate's verdict."""
        where = f"{cell_name(self.cell, self.evidence)} on {plural(self.cell.num_ranks, 'rank')}"
        parts = []
        if self.rate_ratio:
            parts.append(f"{ratio_text(self.rate_ratio)} times as many samples/s as uncompressed")
        if self.wire_bytes is not None and self.wire_share is not None:
            sent = f"{size_text(round(self.wire_bytes))} sent per rank and step"
            parts.append(f"{sent}, {number(100 * self.wire_share)} % of the uncompressed bytes")
        if self.samples_ratio:
            parts.append(f"{ratio_text(self.samples_ratio)} times as many samples needed")
        if self.quality_change and self.cell.target:
            change = share_text(self.quality_change, sign="+")
            parts.append(f"{metric_name(self.cell.target)} {change} after as many samples")
        verdict = "quality not measured" if not self.cell.target else f"accuracy gate {self.gate}"
        return f"{where}: {'; '.join([*parts, verdict])}: {self.why}."


def compressed_cells(measured: Sequence[CellLaunches]) -> tuple[CompressedCell, ...]:
    """All cells that train with compressed gradients on several ranks."""
    cells = [launches for launches in good_launches(measured) if launches.cell.control == "train"]
    compressed = (one for one in cells if is_compressed(one.cell) and one.cell.num_ranks > 1)
    return tuple(_compared(launches, _reference_of(launches, cells)) for launches in compressed)


def is_compressed(cell: Cell) -> bool:
    """Whether gradients travel in other numbers than float32, by the options of the cell's backend."""
    return cell.backend_options.get("compression", "none") != "none"


def _reference_of(launches: CellLaunches, cells: Sequence[CellLaunches]) -> CellLaunches | None:
    plain = (other for other in cells if not is_compressed(other.cell))
    return next(
        (other for other in plain if _without_compression(other) == _without_compression(launches)), None
    )


def _without_compression(launches: CellLaunches) -> tuple[object, ...]:
    """What a cell and its uncompressed one have in common."""
    cell = launches.cell
    options = {name: value for name, value in cell.backend_options.items() if name not in _OPTIONS}
    return (
        launches.family,
        launches.evidence,
        cell.backend,
        cell.num_ranks,
        cell.num_nodes,
        cell.target,
        options,
    )


def _compared(launches: CellLaunches, reference: CellLaunches | None) -> CompressedCell:
    cell = launches.cell
    trainings = trainings_of(launches) if cell.target else ()
    others = trainings_of(reference) if cell.target and reference else ()
    change = _quality_change(cell, trainings, others)
    gate, why = _judged(cell, trainings, others, change)
    sent = [value for record in launches.records if (value := wire_bytes(record)) is not None]
    shares = [value for record in launches.records if (value := wire_share(record)) is not None]
    return CompressedCell(
        cell=cell,
        family=launches.family,
        evidence=launches.evidence,
        reference=reference.cell if reference else None,
        rate_ratio=_rate_ratio(launches, reference),
        wire_bytes=float(np.mean(sent)) if sent else None,
        wire_share=float(np.mean(shares)) if shares else None,
        samples_ratio=_samples_ratio(trainings, others),
        quality_change=change,
        num_reached=sum(training.reached for training in trainings),
        num_trainings=len(trainings),
        gate=gate,
        why=why,
    )


def _rate_ratio(launches: CellLaunches, reference: CellLaunches | None) -> Interval | None:
    if reference is None:
        return None
    own, base = (group.samples_per_second for group in (launches, reference))
    return block_ratio(own, base) if own and base else None


def _samples_ratio(trainings: Sequence[Training], others: Sequence[Training]) -> Interval | None:
    """None unless all reached the target: what the others need nobody knows."""
    if not trainings or not others or not all(training.reached for training in (*trainings, *others)):
        return None
    own, base = ({t.block: float(t.last.samples) for t in group} for group in (trainings, others))
    return block_ratio(own, base)


def _quality_change(cell: Cell, trainings: Sequence[Training], others: Sequence[Training]) -> Interval | None:
    """Relative, by seed, at the last evaluation that both trainings have and neither ended at.

    A training ends where its metric is high by chance, too: there the other one would be judged by that luck.
    """
    if cell.target is None or not trainings or not others:
        return None
    name = cell.target.metric
    sign = 1 if metric_of(cell, cell.target).higher_is_better else -1
    of_block = {training.block: training for training in others}
    changes = []
    for training in trainings:
        if other := of_block.get(training.block):
            own, base = _by_samples(training, name), _by_samples(other, name)
            if (common := sorted(set(own) & set(base))) and base[common[-1]]:
                place = common[-1]
                changes.append(sign * (own[place] - base[place]) / abs(base[place]))
    if not changes:
        return None
    return t_interval(float(np.mean(changes)), [np.array(changes)], level=LEVEL)


def _by_samples(training: Training, metric: str) -> Mapping[int, float]:
    """Samples -> metric, without the end."""
    evaluations = training.solution.evaluations[:-1]
    return {one.samples: one.metrics[metric] for one in evaluations if metric in one.metrics}


def _judged(
    cell: Cell, trainings: Sequence[Training], others: Sequence[Training], change: Interval | None
) -> tuple[str, str]:
    if cell.target is None:
        return UNJUDGED, f"{command(cell)} measures it"
    num_missed = sum(not training.reached for training in trainings)
    if num_missed:
        return FAILED, f"{num_missed} of {plural(len(trainings), 'training')} missed the target"
    if not others:
        return UNJUDGED, "no uncompressed training of the same backend and ranks"
    if not all(training.reached for training in others):
        return UNJUDGED, "uncompressed trainings missed the target themselves"
    allowed = f"{number(100 * TOLERANCE)} % is allowed"
    if change is None:
        return UNJUDGED, "no evaluation after as many samples before the first of the two ended"
    if change.center < -TOLERANCE:
        return FAILED, f"{number(-100 * change.center)} % worse after as many samples ({allowed})"
    return PASSED, f"the target is reached, and {allowed} after as many samples"


def command(cell: Cell) -> str:
    """The study that measures a cell's quality beside the uncompressed one's."""
    options = {key: str(value) for key, value in sorted(cell.backend_options.items()) if key != "compression"}
    asked = {"compression": f"none|{cell.backend_options.get('compression', 'none')}", **options}
    text = ",".join(f"{cell.backend}.{key}={value}" for key, value in asked.items())
    return (
        f"dlscale run time-to-solution --workloads {cell.workload} --frameworks {cell.framework} --backends none,"
        f"{cell.backend} --set backend_options='{text}' --ranks {cell.num_ranks} --preset {cell.preset}"
    )


def to_compression_row(row: CompressedCell) -> dict[str, Any]:
    """A cell's row: gain and loss together. Ratios and changes are those to the uncompressed cell."""
    return {
        **attributes(row.cell, "workload preset framework backend num_ranks num_nodes global_batch"),
        "backend_options": dict(row.cell.backend_options),
        "evidence": row.evidence,
        "compared": row.reference is not None,
        **interval_columns("rate_ratio", row.rate_ratio),
        **attributes(row, "wire_bytes wire_share"),
        **interval_columns("samples_ratio", row.samples_ratio),
        **interval_columns("quality_change", row.quality_change),
        "quality_tolerance": TOLERANCE,
        **attributes(row, "num_reached num_trainings why"),
        "accuracy_gate": row.gate,
    }


def _verdict(row: CompressedCell) -> str:
    return "quality not measured" if not row.cell.target else row.gate


COMPRESSION = TableOf[CompressedCell](
    name="compression",
    caption="Compressed gradients",
    columns=(
        *PLACE_COLUMNS,
        Column("rate", lambda row: row.rate_ratio, unit="of uncompressed"),
        Column("sent", lambda row: row.wire_bytes and row.wire_bytes / 1000, unit="kB per rank and step"),
        Column("of uncompressed", lambda row: row.wire_share and 100 * row.wire_share, unit="%"),
        Column("samples ratio", lambda row: row.samples_ratio, unit="of uncompressed"),
        Column("quality", lambda row: row.quality_change and row.quality_change.times(100), unit="%"),
        Column("accuracy gate", _verdict, numeric=False),
    ),
    data=to_compression_row,
    legend=(
        "Against the uncompressed cell of the same backend and ranks. Rate: samples/s. Sent: bytes of the messages "
        "that were made, as the best algorithm for long messages sends them. Samples ratio: samples to the target. "
        "Quality: change of the target's metric at the last evaluation after as many samples that ended neither "
        "training, paired by seed; below 0 it is worse. The gate fails where a training misses the target, or quality "
        f"is more than {100 * TOLERANCE:g} % worse."
    ),
    tags=lambda row: tags_of(row.cell),
)


def _sentences(found: Sequence[CompressedCell]) -> Iterator[Sentence]:
    return (Sentence(text=cell.text, strong=cell.gate == FAILED, tags=tags_of(cell.cell)) for cell in found)


def _screen(study: Measured) -> Iterator[Block]:
    if found := FINDING.of(study):
        yield Sentence(text=COMPRESSION.caption, strong=True)
        yield from _sentences(found)
        yield brief(COMPRESSION.of(found))


FINDING = Finding(
    name="compression",
    title="Compressed gradients",
    answers=True,
    compute=lambda study: compressed_cells(study.launches),
    table=COMPRESSION,
    sentences=_sentences,
    screen=_screen,
)
FINDINGS = (FINDING,)
