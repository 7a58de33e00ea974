"""Use of the hardware: floating-point operations per second of a rank, and their share of what its cores or GPU can do.

    operations per sample = 3 x those of a forward pass      a layer's gradients, of inputs and of weights, are two more
    per rank              = throughput x operations per sample / ranks
    MFU, share of peak    = per rank / (the node's peak x cores per rank / cores, or a GPU's peak), by the data type

Only convolutions and products of matrices are counted, those of attention with all pairs of tokens, as each preset
states them, so this is the model's use ("MFU") and not the hardware's: what is computed twice counts once. The peak is
what the system's file states, with its source: the file that comes with dlscale, or else that of the study. Where it
states none, a sentence says what to write; where it states less than was measured, there is no share. An adversarial
training has two networks and no such count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlscale.analysis.declare import Column, Sentence, TableOf, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import PLACE_COLUMNS, Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.records import attributes
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import interval_columns, listed
from dlscale.base.errors import UsageError
from dlscale.base.quantities import Quantity
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.systems.system import System, load_system

PASSES = 3  # of a training step, in forward passes
GIGA = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareUse:
    """A training's floating-point operations per second and rank; `peak` is a rank's, None where it is not stated.

    `peak_source` is the document that states it, in words; empty without a peak.
    """

    cell: Cell
    family: Family
    evidence: str
    flops: Interval
    peak: float | None
    peak_source: str

    @property
    def refusal(self) -> str:
        """Why there is no share of the peak though it is stated; empty if there is one."""
        if self.peak is None or self.flops.center <= self.peak:
            return ""
        return (
            f"no share: {self.family.system}'s file states a peak of {self.peak / GIGA:.4g} GFLOP/s per rank for "
            f"{self.cell.precision}, {self.flops.center / self.peak:.0%} of which was measured; correct the file"
        )

    @property
    def share(self) -> Interval | None:
        """The part of the peak that is used; None where that would be more than all of it."""
        return self.flops.times(1 / self.peak) if self.peak and not self.refusal else None


def hardware_use(rows: Iterable[ScalingRow], system: System | None = None) -> list[HardwareUse]:
    """One per row of a training with a throughput whose operations are known; `system` is that of the study's file."""
    rows = list(rows)
    systems = {name: _system(name, system) for name in {row.family.system for row in rows}}
    return [
        HardwareUse(
            cell=row.cell,
            family=row.family,
            evidence=row.evidence or "",
            flops=row.throughput.times(per_sample / row.cell.num_ranks),
            peak=rank_peak(systems[row.family.system], row.cell),
            peak_source=peak_source(systems[row.family.system], row.cell),
        )
        for row in rows
        if row.throughput and row.cell.control == "train" and (per_sample := _flops_per_sample(row.cell))
    ]


def _flops_per_sample(cell: Cell) -> int | None:
    try:
        preset = cell.preset_facts
    except (UsageError, ImportError):  # of another version's records
        return None
    known = preset.num_classes and preset.forward_flops_per_sample
    return PASSES * preset.forward_flops_per_sample if known else None


def _system(name: str, of_study: System | None) -> System | None:
    try:
        return load_system(name)
    except UsageError:  # a file of the user's
        return of_study if of_study and of_study.name == name else None


def _stated(system: System | None, cell: Cell) -> Quantity | None:
    """The peak at the cell's precision of what it trained on: a GPU, or a node whose cores are known."""
    if system is None or (cell.device == "cpu" and isinstance(system.node.cores, str)):
        return None
    part = system.devices if cell.device == "gpu" else system.node
    return part.peak.get(cell.precision) if part else None


def rank_peak(system: System | None, cell: Cell) -> float | None:
    """Operations per second that a rank could reach at its precision, by the system's file; None if it states none."""
    stated = _stated(system, cell)
    if system is None or stated is None:
        return None
    if isinstance(cores := system.node.cores, str) or cell.device == "gpu":
        return stated.number
    return stated.number * cell.cores_per_rank / cores.value


def peak_source(system: System | None, cell: Cell) -> str:
    """The document that states the peak, with the file's note; empty without a peak."""
    stated = _stated(system, cell)
    if system is None or stated is None:
        return ""
    document = system.sources.get(stated.source, stated.source)
    return f"{document} ({stated.note})" if stated.note else document


def _without_peak(uses: Sequence[HardwareUse]) -> Iterator[Sentence]:
    """One sentence on what no file states, and what to write there."""
    missing: dict[tuple[str, str], list[str]] = {}
    for use in uses:
        if use.peak is None:
            precisions = missing.setdefault((use.family.system, use.cell.device), [])
            precisions += [] if use.cell.precision in precisions else [use.cell.precision]
    if not missing:
        return
    files = [
        f"{system} states no peak of its {'GPUs' if device == 'gpu' else 'cores'} for {listed(precisions)}"
        for (system, device), precisions in missing.items()
    ]
    (_, device), (precision, *_) = next(iter(missing.items()))
    place, beside = ("devices.peak", "devices.per_node") if device == "gpu" else ("node.peak", "node.cores")
    yield Sentence(
        text=f"No MFU: the file of {'; that of '.join(files)}. In a file of your own write {place}.{precision} = "
        f'{{ value = "... TFLOP/s", source = "..." }} beside {beside}, or let dlscale system probe --measure draft it.'
    )


def to_hardware_row(use: HardwareUse) -> dict[str, Any]:
    """The row of a training; `peak_share` is a fraction."""
    return {
        "system": use.family.system,
        "cell": use.cell.id,
        **attributes(use.cell, "backend num_ranks"),
        **interval_columns("flops_per_second_and_rank", use.flops),
        "peak_flops_per_second": use.peak,
        "peak_source": use.peak_source,
        **interval_columns("peak_share", use.share),
        "peak_refused": use.refusal,
    }


HARDWARE = TableOf[HardwareUse](
    name="hardware",
    caption="Use of the hardware",
    columns=(
        *PLACE_COLUMNS,
        Column("precision", lambda use: use.cell.precision),
        Column("per rank", lambda use: use.flops.times(1 / GIGA), unit="GFLOP/s"),
        Column("peak", lambda use: use.peak and use.peak / GIGA, unit="GFLOP/s"),
        Column("MFU", lambda use: use.share and use.share.times(100), unit="%"),
        Column("source of the peak", lambda use: use.peak_source, numeric=False, detail=True),
        Column("notes", lambda use: use.refusal, numeric=False),
    ),
    data=to_hardware_row,
    legend=(
        "Use of the hardware: operations of the model, three forward passes per sample, convolutions and products of "
        "matrices only. MFU: per rank / peak, which the system's file states for the precision, of a GPU or of the "
        "rank's cores."
    ),
    tags=lambda use: tags_of(use.cell),
)

FINDINGS = (
    Finding(
        name="hardware_use",
        title="Use of the hardware",
        compute=lambda study: hardware_use(scaling.FINDING.of(study), study.system),
        sentences=_without_peak,
        more=lambda uses: (HARDWARE.of(use for use in uses if use.peak),),
        data=lambda uses: {"hardware_use": list(map(to_hardware_row, uses))},
    ),
)
