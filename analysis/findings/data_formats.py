"""Formats of data: what repackaging took, what they occupy, and how fast each framework reads and trains from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlscale.analysis.declare import Column, TableOf, Tags
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.measured import Measured
from dlscale.analysis.records import attributes
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import interval_columns, number, workload_title
from dlscale.benchmarks.records.preparation import Preparation


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatUse:
    """A data set in one format, read by one framework on one number of ranks; rates are samples/s over all ranks."""

    preparation: Preparation
    workload: str
    framework: str
    num_ranks: int
    reading: Interval | None  # batches alone
    training: Interval | None
    stall: Interval | None  # the share of a training step that fetching its batch takes


def data_is_prepared(row: ScalingRow, prepared: Sequence[Preparation]) -> bool:
    """Whether a training reads data that were repackaged for a comparison of formats."""
    return row.cell.data.partition(":")[0] in {found.name for found in prepared}


def format_uses(studies: Sequence[Measured], prepared: Sequence[Preparation]) -> list[FormatUse]:
    """By workload, framework and ranks, the formats in the order of their preparations; those that were read."""
    uses = [
        FormatUse(
            preparation=found,
            workload=row.cell.workload,
            framework=row.cell.framework,
            num_ranks=row.cell.num_ranks,
            reading=_reading(study, row),
            training=row.throughput,
            stall=row.input_stall,
        )
        for found in prepared
        for study in studies
        for row in scaling.FINDING.of(study)
        if row.cell.control == "train" and data_is_prepared(row, [found])
    ]
    return sorted(uses, key=lambda use: (use.workload, use.framework, use.num_ranks))


def _reading(study: Measured, row: ScalingRow) -> Interval | None:
    """The throughput of the control that only fetches batches, beside a training."""
    wanted = row.cell.model_copy(update={"control": "loader"}).id
    return next((other.throughput for other in scaling.FINDING.of(study) if other.cell.id == wanted), None)


def preparation_sentences(prepared: Sequence[Preparation]) -> Iterator[str]:
    """What repackaging took, in a sentence per format."""
    for found in prepared:
        yield (
            f"{found.source} ({found.source_format}) as {found.format}: repackaged in {number(found.seconds)} s, "
            f"{found.num_bytes / 1e6:.1f} MB in {found.num_files} files for {found.num_samples} samples."
        )


def to_format_row(use: FormatUse) -> dict[str, Any]:
    """The row of a format and a framework; `preparation_seconds` are those of one conversion."""
    found = use.preparation
    return {
        **attributes(use, "workload framework num_ranks"),
        **attributes(
            found, "format source source_format num_samples num_skipped image_bytes num_bytes num_files"
        ),
        "preparation_seconds": found.seconds,
        **interval_columns("reading_samples_per_second", use.reading),
        **interval_columns("training_samples_per_second", use.training),
        **interval_columns("input_stall", use.stall),
    }


FORMAT_USES = TableOf[FormatUse](
    name="formats",
    caption="Formats of data",
    columns=(
        Column("workload", lambda use: workload_title(use.workload), numeric=False, common=True),
        Column("framework", lambda use: use.framework, numeric=False),
        Column("ranks", lambda use: use.num_ranks, numeric=False),
        Column("format", lambda use: use.preparation.format, numeric=False),
        Column("prepared", lambda use: use.preparation.seconds, unit="s"),
        Column("size", lambda use: use.preparation.num_bytes / 1e6, unit="MB"),
        Column("files", lambda use: use.preparation.num_files),
        Column("reading", lambda use: use.reading, unit="samples/s"),
        Column("training", lambda use: use.training, unit="samples/s"),
        Column("fetching", lambda use: use.stall and use.stall.times(100), unit="% of a step"),
    ),
    data=to_format_row,
    legend=(
        "Prepared: one conversion from the source, until it is on the disk, so that it has no interval. Reading: "
        "batches alone, without training (control loader). Both frameworks read by dlscale's own readers; files that "
        "were written a moment ago come from memory."
    ),
    tags=lambda use: Tags(workload=use.workload, framework=use.framework),
    group=lambda use: (use.workload, use.framework, use.num_ranks),
)
