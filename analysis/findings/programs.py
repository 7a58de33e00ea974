"""Programs: a framework with or without its compiler, and what the same training costs in each.

A program has its speed, the time to a target, its start, memory and checkpoints, and the lines that its script changes.
Speed is that of studies without a target; times to a target are joined to the cells that are equal but for the target.
docs/comparing.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dlscale.analysis.declare import Column, TableOf, Value, tags_of
from dlscale.analysis.finding import tokens_column
from dlscale.analysis.findings import scaling, solution_table
from dlscale.analysis.findings.contrast_declaration import Side, sides_of
from dlscale.analysis.findings.productivity import Change, stored_changes
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.findings.solution_table import evaluation_rows
from dlscale.analysis.findings.solutions import TimeToSolution
from dlscale.analysis.findings.trainings import launch_seconds
from dlscale.analysis.measured import Measured
from dlscale.analysis.records import (
    attributes,
    named,
    setting_columns,
    settings_text,
    slowest_in_phase,
    tokens_per_second,
)
from dlscale.analysis.statistics import Interval, median_interval
from dlscale.analysis.text import gibibytes, interval_columns, plural, workload_title
from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.models.frameworks import FRAMEWORKS

JOB_SECONDS = 1800.0  # of a job whose share for start and checkpoint is shown, unless another is named
PROGRAMS = {
    ("torch", False): "torch eager",
    ("torch", True): "torch compiled",
    ("tensorflow", False): "tensorflow graph",
    ("tensorflow", True): "tensorflow XLA",
}
PROGRAM_FIELDS = frozenset({"framework", "compiled"})  # of a cell, in which programs differ
# Programs that start ranks, as the first of them in a command line says how a script is started.
STARTERS = ("mpirun", *LAUNCHERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A training in one framework, compiled or not, on one number of ranks; None is what no record says.

    Seconds are those of the slowest rank. `start_seconds` are from the launch to the end of the first step, without the
    gates, which only a benchmark has: `gates_seconds`.
    """

    cell: Cell
    row: ScalingRow
    step_seconds: Interval | None
    start_seconds: Interval | None
    gates_seconds: Interval | None
    epoch_samples: int | None
    saving_seconds: Interval | None  # of a checkpoint
    reading_seconds: float | None  # of one that a training resumed from
    state_bytes: int | None
    solution: TimeToSolution | None
    change: Change | None  # of the script for 1 process
    script_command: str  # that starts a script; empty if the record does not say
    job_seconds: float = JOB_SECONDS
    side: Side | None = None  # in comparisons of speed; None where that was not to be measured

    @property
    def name(self) -> str:
        """`torch compiled`; the name of its curve, too."""
        return program_name(self.cell)

    @property
    def training_title(self) -> str:
        """`HEP-CNN tiny over ring`."""
        cell = self.cell
        return f"{workload_title(cell.workload)} {cell.preset} over {backend_text(cell)}"

    @property
    def epoch_seconds(self) -> Interval | None:
        """Seconds of the steps of an epoch; None if nobody says how many samples that is."""
        if not (self.step_seconds and self.epoch_samples):
            return None
        return self.step_seconds.times(self.epoch_samples / self.cell.global_batch)

    @property
    def solution_seconds(self) -> Interval | None:
        """From the launch to the target, gates left out."""
        return self.solution.seconds if self.solution else None

    @property
    def steps_to_target(self) -> Interval | None:
        """Steps of the cell's batch until the target was reached."""
        if not (self.solution and self.solution.samples):
            return None
        return self.solution.samples.times(1 / self.cell.global_batch)

    @property
    def job_share(self) -> float | None:
        """The share of a job that starts, reads its state and saves it once; None without a checkpoint."""
        if not (self.start_seconds and self.saving_seconds):
            return None
        outside = self.start_seconds.center + self.saving_seconds.center + (self.reading_seconds or 0.0)
        return min(1.0, outside / self.job_seconds)


def program_name(cell: Cell) -> str:
    """`torch eager`, `tensorflow XLA`; a framework that has no such names: `other compiled`."""
    known = PROGRAMS.get((cell.framework, cell.compiled))
    return known or cell.framework + " compiled" * cell.compiled


def backend_text(cell: Cell) -> str:
    """The backend with its options, and an algorithm beside synchronous SGD; without what else a curve's name has."""
    return f"{cell.method} ({settings_text(cell.options)})" if cell.options else cell.method


def programs(studies: Sequence[Measured], *, job_seconds: float = JOB_SECONDS) -> list[Program]:
    """The programs of all studies, by what is trained, ranks and backend.

    Raises UsageError if two of the studies have measured the speed, or the time to a target, of the same cell.
    """
    speeds: dict[tuple[str, ...], tuple[Measured, ScalingRow]] = {}
    targets: dict[tuple[str, ...], tuple[Measured, ScalingRow]] = {}
    for study in studies:
        for row in scaling.FINDING.of(study):
            if row.cell.control != "train":
                continue
            found = targets if row.cell.target else speeds
            key = (row.family.system, row.evidence or "", _without_target(row.cell).id)
            if key in found:
                name = f"{row.cell.workload} in {program_name(row.cell)} over {backend_text(row.cell)}"
                raise UsageError(
                    f"{name} on {plural(row.cell.num_ranks, 'rank')} is in two of the studies, or there to two "
                    "targets; name one study of each kind"
                )
            found[key] = study, row
    changes = {(change.framework, change.backend): change for change in stored_changes()}
    items = [
        _program(speeds.get(key), targets.get(key), changes, job_seconds)
        for key in dict.fromkeys([*speeds, *targets])
    ]
    return sorted(items, key=_order)


def training_key(cell: Cell) -> str:
    """Everything of a cell but its program and what the ranks change; along a curve one of the batches follows them."""
    batch = cell.batch
    ignored = PROGRAM_FIELDS | {"num_ranks", "num_nodes", "num_servers", "local_batch", "global_batch"}
    return repr((batch, sorted(cell.model_dump(exclude=set(ignored)).items())))


def by_training(items: Iterable[Program]) -> list[list[Program]]:
    """The programs of each training, on all ranks, in the items' order."""
    groups: dict[tuple[str, ...], list[Program]] = {}
    for item in items:
        key = (item.row.family.system, item.row.evidence or "", training_key(item.cell))
        groups.setdefault(key, []).append(item)
    return list(groups.values())


def _program(
    speed: tuple[Measured, ScalingRow] | None,
    target: tuple[Measured, ScalingRow] | None,
    changes: dict[tuple[str, str], Change],
    job_seconds: float,
) -> Program:
    """What is known of a cell whose speed or time to a target was measured, or both."""
    measured = [place for place in (speed, target) if place]
    study, row = measured[0]
    launches = study.good_launches_of(row.family, row.cell, row.evidence)
    records = launches.records if launches else []
    everything = [record for place in measured for record in _records(*place)]
    saved = [record.checkpoints for record in everything if record.checkpoints]
    resumed = [record.resumed.seconds for record in everything if record.resumed]
    plain = _without_target(row.cell)
    cell = named(plain, program_name(plain))
    return Program(
        cell=cell,
        row=row,
        step_seconds=launches.step_seconds if launches else None,
        start_seconds=_median([_start(record) for record in records]),
        gates_seconds=_median([slowest_in_phase(record.phases, "gates") for record in records]),
        epoch_samples=next(filter(None, map(_epoch_samples, everything)), None),
        saving_seconds=_median(
            [float(np.median([checkpoint.seconds for checkpoint in each])) for each in saved]
        ),
        reading_seconds=float(np.median(resumed)) if resumed else None,
        state_bytes=max((checkpoint.num_bytes for each in saved for checkpoint in each), default=None),
        solution=_solution_of(*target) if target else None,
        change=changes.get((cell.framework, cell.backend)),
        script_command=_command(cell, records),
        job_seconds=job_seconds,
        side=_side(*speed, plain) if speed else None,
    )


def _side(study: Measured, row: ScalingRow, plain: Cell) -> Side | None:
    """The side of a measurement of speed, failed launches among it; named for the program."""
    own = (one for one in study.by_family.get(row.family, ()) if one.id == row.cell.id)
    sides = (side for launches in own for side in sides_of(launches) if side.evidence == row.evidence)
    return next((replace(side, name=program_name(plain), cell=plain) for side in sides), None)


def _records(study: Measured, row: ScalingRow) -> list[Record]:
    launches = study.good_launches_of(row.family, row.cell, row.evidence)
    return launches.records if launches else []


def _solution_of(study: Measured, row: ScalingRow) -> TimeToSolution | None:
    """The row of the same cell and evidence among the table's times to solution."""
    wanted = (row.cell.id, row.evidence)
    solutions = (
        found for found in solution_table.FINDING.of(study) if (found.cell.id, found.evidence) == wanted
    )
    return next(
        (replace(found, cell=named(found.cell, program_name(found.cell))) for found in solutions), None
    )


def _without_target(cell: Cell) -> Cell:
    return cell.model_copy(update={"target": None})


def _median(values: Sequence[float | None]) -> Interval | None:
    """The median; None unless all are known."""
    known = [value for value in values if value is not None]
    return median_interval(known) if known and len(known) == len(values) else None


def _start(record: Record) -> float | None:
    """From the launch to the end of the first step, gates left out."""
    before, first = launch_seconds(record), slowest_in_phase(record.phases, "first_step")
    return None if before is None or first is None else before + first


def _epoch_samples(record: Record) -> int | None:
    return record.solution.num_training if record.solution else None


def _command(cell: Cell, records: Sequence[Record]) -> str:
    """`mpiexec -n 2 python SCRIPT`: the launcher is that of the records."""
    words = (Path(word).name for record in records[:1] for word in record.command.split())
    launcher = next((word for word in words if word in STARTERS), "")
    return f"{launcher} -n {cell.num_processes} python SCRIPT" if launcher else ""


def _order(item: Program) -> tuple[object, ...]:
    cell, frameworks = item.cell, list(FRAMEWORKS)
    place = frameworks.index(cell.framework) if cell.framework in frameworks else len(frameworks)
    return (
        *(item.row.family.system, cell.workload, cell.preset, cell.data, cell.num_nodes, cell.num_ranks),
        *(backend_text(cell), cell.num_servers, item.row.evidence or "", cell.precision, cell.local_batch),
        *(place, cell.compiled, cell.id),
    )


def to_program_row(item: Program) -> dict[str, Any]:
    """The row of a program; `job_share` is of `job_seconds`, and `lines` are those added, changed and removed."""
    cell, change, solution = item.cell, item.change, item.solution
    return {
        **setting_columns(item.row.family, cell),
        "program": item.name,
        "evidence": item.row.evidence,
        "num_launches": item.row.num_launches,
        "num_planned": item.row.num_planned,
        **interval_columns("samples_per_second", item.row.throughput),
        **interval_columns("tokens_per_second", tokens_per_second(cell, item.row.throughput)),
        **interval_columns("step_seconds", item.step_seconds),
        "epoch_samples": item.epoch_samples,
        **interval_columns("epoch_seconds", item.epoch_seconds),
        "target_metric": solution.target.metric if solution else None,
        "target_threshold": solution.target.threshold if solution else None,
        "num_trainings": len(solution.trainings) if solution else 0,
        "num_reached": solution.num_reached if solution else 0,
        **interval_columns("solution_seconds", item.solution_seconds),
        **interval_columns("solution_steps", item.steps_to_target),
        **interval_columns("start_seconds", item.start_seconds),
        **interval_columns("gates_seconds", item.gates_seconds),
        "peak_rss_bytes": item.row.peak_rss_bytes,
        "state_bytes": item.state_bytes,
        **interval_columns("saving_seconds", item.saving_seconds),
        **attributes(item, "reading_seconds job_seconds job_share"),
        "lines_added": change.added if change else None,
        "lines_changed": change.changed if change else None,
        "lines_removed": change.removed if change else None,
        "script": change.script if change else None,
        "script_command": item.script_command,
    }


def loss_rows(items: Iterable[Program]) -> Iterator[dict[str, Any]]:
    """A row for each evaluation of each training to a target; `seconds` are from the launch, without gates."""
    for item in items:
        for row in evaluation_rows([item.solution] if item.solution else []):
            yield {**row, "program": item.name, "backend": backend_text(item.cell)}


def _training(item: Program) -> str:
    return f"{workload_title(item.cell.workload)} {item.cell.preset}"


def _backend(item: Program) -> str:
    kind = item.row.evidence if item.row.evidence not in (None, "measured") else ""
    return ", ".join(filter(None, (backend_text(item.cell), kind)))


def _lines(item: Program) -> int | None:
    change = item.change
    return change.added + change.changed + change.removed if change else None


NAMED: tuple[Column[Program], ...] = (
    Column("training", _training, numeric=False, common=True),
    Column("data", lambda item: item.cell.data.partition(":")[0], numeric=False, common=True),
    Column("backend", _backend, numeric=False, common=True),
    Column("ranks", lambda item: item.cell.num_ranks, numeric=False),
    Column("program", lambda item: item.name, numeric=False),
)


def _table(name: str, *, caption: str, columns: tuple[Column[Program], ...], legend: str) -> TableOf[Program]:
    """A table of programs, in which those of one workload on one system and number of ranks stand together."""
    return TableOf(
        name=name,
        caption=caption,
        columns=(*NAMED, *columns),
        data=to_program_row,
        legend=legend,
        tags=lambda item: tags_of(item.cell),
        group=lambda item: (item.row.family.system, item.cell.workload, item.cell.num_ranks),
    )


SPEED = _table(
    "programs",
    caption="Speed, and time to the target",
    columns=(
        Column("throughput", lambda item: item.row.throughput, unit="samples/s"),
        tokens_column(lambda item: item.cell, lambda item: item.row.throughput),
        Column("step", lambda item: item.step_seconds and item.step_seconds.times(1e3), unit="ms"),
        Column("epoch", lambda item: item.epoch_seconds or "", unit="s"),
        Column("to target", lambda item: item.solution_seconds or "", unit="s"),
        Column("steps to target", lambda item: item.steps_to_target or ""),
        Column(
            "n",
            lambda item: Value(
                text=f"{item.row.num_launches}/{item.row.num_planned}", order=item.row.num_launches
            ),
        ),
    ),
    legend=(
        "Throughput: over all ranks, the median launch with its 95 % order-statistic interval (from 6 launches on). "
        "Epoch: the steps of as many samples as trainings to a target have. To target: from the launch without gates, "
        "medians over trainings; steps are samples over the global batch. n: successful / planned "
        "launches. torch compiled: torch.compile; tensorflow graph: tf.function, in which its networks always run; "
        "XLA: compiled."
    ),
)
COSTS = _table(
    "costs",
    caption="What else it costs",
    columns=(
        Column("start", lambda item: item.start_seconds, unit="s"),
        Column("gates", lambda item: item.gates_seconds, unit="s"),
        Column(
            "memory",
            lambda item: Value(text=gibibytes(item.row.peak_rss_bytes), order=item.row.peak_rss_bytes),
            unit="GiB",
        ),
        Column("state", lambda item: (item.state_bytes and item.state_bytes / 1e6) or "", unit="MB"),
        Column("save", lambda item: item.saving_seconds or "", unit="s"),
        Column(
            "of a job", lambda item: "" if item.job_share is None else f"{100 * item.job_share:.2f}", unit="%"
        ),
        Column("script", _lines, unit="lines"),
        Column("start of a script", lambda item: item.script_command, numeric=False, detail=True),
    ),
    legend=(
        "Start: launch to the end of the first step, gates left out: imports, connecting, and compiling as far as the "
        "gates did not do it before; gates: a benchmark's own checks, tracing and compiling among them. Memory: the "
        "most that a rank's process held. Save: a checkpoint, all ranks standing still. Of a job: the share of its "
        "time that starting, reading the state (where a training resumed) and saving once take. Script: lines that "
        "differ from a script for 1 process (docs/measurements/productivity.md); compiling is one more."
    ),
)
