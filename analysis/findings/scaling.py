"""Throughput and scaling efficiency of every cell, with intervals, number of launches, flaws and findings.

E(p) = (T(p) / p) / (T(b) / b) with T in samples per second, the same for weak and strong scaling; 1 is ideal. Where
samples grow with their ranks, T is in samples of the base case's size. It is
given against two base cases on b ranks, 1 unless another base is chosen, with control `train` and the same cores per
rank: backend `none`, no communication layer, and the same backend. docs/metrics.md explains the metrics. The
cost of input is measured by the controls that ran in the same launches as the training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dlscale.analysis.curves import options_order
from dlscale.analysis.declare import Column, Sentence, TableOf, Tags, Value, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import PLACE_COLUMNS, Finding, tokens_column
from dlscale.analysis.measured import Measured
from dlscale.analysis.metrics import VERSUS_BACKEND, VERSUS_NONE, CellMetrics, metrics_of
from dlscale.analysis.records import setting_columns, tokens_per_second
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import (
    RATIO_LIMITS,
    backend_name,
    efficiency_text,
    interval_columns,
    percent,
    plural,
    rate,
    workload_title,
)
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import GpuMemory
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import NONE


def scaling_row(row: ScalingRow) -> dict[str, Any]:
    """A cell's fields, then its numbers, None if unknown. Efficiencies are ratios: 1 is ideal.

    `speed_up` is `efficiency_none` times the number of ranks over `base_ranks`, those of the base cases;
    `efficiency_none_median` is the efficiency of the median block.
    `input_stall` and `input_loss` are shares of a training step.
    """
    cell = row.cell
    return {
        **setting_columns(row.family, cell),
        "control": cell.control,
        "evidence": row.evidence,
        "fingerprint": row.fingerprint,
        **interval_columns("samples_per_second", row.throughput),
        **interval_columns("tokens_per_second", tokens_per_second(cell, row.throughput)),
        **interval_columns("speed_up", row.speed_up),
        **interval_columns("efficiency_none", row.efficiency_none),
        **interval_columns("efficiency_backend", row.efficiency_backend),
        "efficiency_none_median": row.efficiency_none_median,
        **interval_columns("input_stall", row.input_stall),
        **interval_columns("input_loss", row.input_loss),
        "peak_rss_bytes": row.peak_rss_bytes,
        "window_rss_bytes": row.window_rss_bytes,
        "gpu_allocated_bytes": row.gpu_memory and row.gpu_memory.allocated_bytes,
        "gpu_reserved_bytes": row.gpu_memory and row.gpu_memory.reserved_bytes,
        "gpu_total_bytes": row.gpu_memory and row.gpu_memory.total_bytes,
        "num_launches": row.num_launches,
        "num_planned": row.num_planned,
        "base_ranks": row.base_ranks,
        "notes": list(row.notes),
    }


CONTROLS = ("train", "synthetic", "loader", "alone", "whole_machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    """The numbers of one cell. An efficiency is None for a control, or for the reason given in `notes`."""

    cell: Cell
    family: Family
    num_planned: int  # launches, the failed and missing ones included
    notes: tuple[str, ...]
    evidence: str | None = None  # None if no launch left a record
    fingerprint: str | None = None
    throughput: Interval | None = None  # samples per second over all ranks; None if no launch gave a number
    efficiency_none: Interval | None = None  # against backend `none`
    efficiency_none_median: float | None = None  # of the median block; intervals are of geometric means
    efficiency_backend: Interval | None = None  # against the same backend
    base_ranks: int  # of both base cases
    input_stall: Interval | None = None  # share of a training step, from the loader-only control
    input_loss: Interval | None = None  # share of a training step, from the synthetic control
    peak_rss_bytes: int | None = None  # the largest rank's, over launches
    window_rss_bytes: int | None = None  # likewise, while windows ran
    gpu_memory: GpuMemory | None = None  # likewise
    num_launches: int = 0  # that gave a number
    on_launches: tuple[str, ...] = ()  # those of the notes that are on unsteady, short or uneven launches
    history: tuple[str, ...] = ()  # those on what was made good since

    @property
    def speed_up(self) -> Interval | None:
        """T(p) / T(b) against `none`, efficiency times p / b; for weak scaling the scaled speed-up."""
        return self.efficiency_none and self.efficiency_none.times(self.cell.num_ranks / self.base_ranks)


class OfRow:
    """A number beside a row of this table, with what tables and plots ask of each number."""

    __slots__ = ()
    row: ScalingRow

    @property
    def cell(self) -> Cell:
        return self.row.cell

    @property
    def family(self) -> Family:
        return self.row.family

    @property
    def evidence(self) -> str | None:
        return self.row.evidence


def base_text(rows: Iterable[ScalingRow]) -> str:
    """`1 rank`: what the base cases of a family's rows ran on."""
    return plural(next((row.base_ranks for row in rows if row.cell.control == "train"), 1), "rank")


def _efficiency(interval: Interval | None) -> Value:
    return Value(text=percent(interval, unit=""), order=None if interval is None else interval.center)


def _cost(row: ScalingRow) -> float | None:
    """Node-hours per million samples."""
    return None if row.throughput is None else row.cell.num_nodes * 1e6 / row.throughput.center / 3600


SCALING = TableOf[ScalingRow](
    name="numbers",
    caption="All cells",
    columns=(
        *PLACE_COLUMNS,
        Column("nodes", lambda row: row.cell.num_nodes, detail=True),
        Column("throughput", lambda row: row.throughput, unit="samples/s"),
        tokens_column(lambda row: row.cell, lambda row: row.throughput),
        Column("speed-up", lambda row: row.speed_up, detail=True),
        Column(VERSUS_NONE, lambda row: _efficiency(row.efficiency_none), unit="%"),
        Column(VERSUS_BACKEND, lambda row: _efficiency(row.efficiency_backend), unit="%"),
        Column("cost", _cost, unit="node-hours per million samples", detail=True),
        Column("n", lambda row: Value(text=f"{row.num_launches}/{row.num_planned}", order=row.num_launches)),
        Column("notes", lambda row: Value(text="; ".join(row.notes), notes=row.notes), numeric=False),
    ),
    data=lambda row: {**scaling_row(row), "node_hours_per_million_samples": _cost(row)},
    legend=(
        "n: successful / planned launches. Throughput: over all ranks, in the slowest rank's time; the "
        f"median launch while the study ran and, from 6 on, its {100 * LEVEL:.0f} % order-statistic interval. "
        f"Efficiency: (T(p)/p) / (T(b)/b), with {RATIO_LIMITS} over blocks, "
        f"{VERSUS_NONE} without communication and {VERSUS_BACKEND} on as many; b is 1, unless another --base is named; "
        f"speed-up: T(p)/T(b) {VERSUS_NONE}."
    ),
    tags=lambda row: tags_of(row.cell),
    group=lambda row: (row.cell.control == "whole_machine", backend_name(row.cell)),
)


def scaling_rows(measured: Measured) -> tuple[ScalingRow, ...]:
    """The rows of all cells, planned ones without a record too, by family, backend, control and ranks."""
    planned = dict(measured.planned_cells)
    rows = [_row(one, measured) for one in measured.once(metrics_of)]
    for cell_id in {row.cell.id for row in rows} & planned.keys():
        del planned[cell_id]
    for cell in planned.values():
        not_run = ScalingRow(
            cell=cell.cell,
            family=cell.family,
            base_ranks=measured.base_ranks.get(cell.family, 1),
            num_planned=cell.num_launches,
            notes=("not run",),
        )
        rows.append(not_run)
    return tuple(sorted(rows, key=_row_order))


def _row(one: CellMetrics, measured: Measured) -> ScalingRow:
    cell, family, relations = one.launches.cell, one.launches.family, [one.against_none]
    if cell.backend != "none":
        relations.append(one.against_backend)
    notes = list(one.flaws)
    if one.throughput and one.throughput.low is None:
        notes.append(f"fewer than 6 launches: no {100 * LEVEL:.0f} % interval of samples/s")
    on_launches = [one.launches.unsteady, one.launches.short]
    for relation in relations:
        notes += relation.notes
        on_launches.append(relation.uneven)
    of_plan = measured.planned_cells.get(one.launches.id)
    num_launches = len(one.launches.cases)
    return ScalingRow(
        cell=cell,
        family=family,
        evidence=one.evidence,
        fingerprint=one.fingerprint,
        throughput=one.throughput,
        efficiency_none=one.against_none.ratio,
        efficiency_none_median=one.against_none.median,
        efficiency_backend=one.against_backend.ratio,
        base_ranks=one.base_ranks,
        input_stall=one.input_stall,
        input_loss=one.input_loss,
        peak_rss_bytes=one.launches.peak_rss_bytes,
        window_rss_bytes=one.launches.window_rss_bytes,
        gpu_memory=one.launches.gpu_memory,
        num_launches=num_launches,
        num_planned=max(num_launches + one.num_failed, of_plan.num_launches if of_plan else 0),
        notes=tuple(notes),
        on_launches=tuple(filter(None, on_launches)),
        history=(one.launches.repeated,),
    )


def rows_of(rows: Iterable[ScalingRow], family: Family) -> tuple[ScalingRow, ...]:
    """The rows of a family, followed by the whole-machine references that it covers."""
    own = [
        row
        for row in rows
        if row.family == family or (row.cell.control == "whole_machine" and family.covers(row.family))
    ]
    return tuple(sorted(own, key=lambda row: row.cell.control == "whole_machine"))


def _sentences(rows: Sequence[ScalingRow]) -> Iterator[Sentence]:
    """Each backend's efficiency on the most ranks."""
    families = list(dict.fromkeys(row.family for row in rows))
    for family in families:
        own = rows_of(rows, family)
        name = f"{workload_title(family.workload)} ({family.framework}), " if len(families) > 1 else ""
        groups = groupby(own, key=lambda row: (row.cell.control, backend_name(row.cell), row.evidence))
        for _, group in groups:
            if text := efficiency_summary(list(group)):
                tags = Tags(workload=family.workload, framework=family.framework)
                yield Sentence(text=f"{name}{text}", tags=tags)


def efficiency_summary(rows: Sequence[ScalingRow]) -> str:
    """A sentence on a backend's efficiency at its largest number of ranks; empty without a training on several."""
    scaled = [row for row in rows if row.cell.control == "train" and row.cell.num_ranks > 1]
    if not scaled:
        return ""
    row = max(scaled, key=lambda row: (row.throughput is not None, row.cell.num_ranks))
    name, ranks = backend_name(row.cell), f"{row.cell.num_ranks} ranks"
    if row.evidence not in (None, "measured"):
        name += f" ({row.evidence})"
    if row.throughput is None:
        return f"{name}: no number on more than 1 rank ({row.num_launches} of {row.num_planned} launches)."
    against_none, against_backend = row.efficiency_none, row.efficiency_backend
    if against_none is None and against_backend is None:
        return f"{name}: {rate(row.throughput)} samples/s on {ranks}; no base case, so no efficiency."
    base = base_text([row])
    if against_none is None:
        lacking = "no single-rank baseline" if row.base_ranks == 1 else f"none was not measured on {base}"
        return (
            f"{name}: scaling efficiency {efficiency_text(against_backend)} at {ranks} versus its own {base}; "
            f"{lacking}."
        )
    if row.cell.backend == "none":
        return (
            f"{name}: efficiency {efficiency_text(against_none)} at {ranks} without communication; the rest is lost to "
            "sharing the machine."
        )
    own = f" ({efficiency_text(against_backend)} versus its own {base})" if against_backend else ""
    return f"{name}: scaling efficiency {efficiency_text(against_none)} at {ranks}{own}."


FINDING = Finding(
    name="rows",
    title="All numbers",
    compute=scaling_rows,
    table=SCALING,
    sentences=_sentences,
    data=lambda rows: {"rows": [scaling_row(row) for row in rows]},
)
FINDINGS = (FINDING,)


def unchecked(cells: Iterable[Cell]) -> Iterator[Sentence]:
    """What gates cannot check of a user's own model; nothing about another workload."""
    for text in dict.fromkeys(cell.unchecked for cell in cells if cell.unchecked):
        yield Sentence(text=f"Not checked of this file: {text}.", quiet=True)


def _row_order(row: ScalingRow) -> tuple[object, ...]:
    """Backend `none` first, as the others' base case; then by name."""
    cell = row.cell
    control = CONTROLS.index(cell.control)
    return (
        *(
            row.family,
            cell.backend != "none",
            cell.backend,
            cell.algorithm != SYNC,
            cell.algorithm,
            cell.shard != NONE,
            cell.shard,
            cell.split,
        ),
        options_order(cell),
        *(control, cell.num_ranks, cell.num_servers, cell.num_nodes, row.evidence or ""),
    )
