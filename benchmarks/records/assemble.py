"""Assembles one record per case from the spools of one launch, even if the launch failed.

What ranks and launchers wrote is redacted here; `LaunchMetadata` is when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from pydantic import ValidationError

from dlscale.base.definitions import first_problem
from dlscale.base.redaction import redacted
from dlscale.benchmarks.records.cell import Case, Setting
from dlscale.benchmarks.records.nodes import EnergyReading, NodeEnergy, NodeFacts, NodeSettings
from dlscale.benchmarks.records.record import (
    Checkpoint,
    Failure,
    Gate,
    GpuMemory,
    LateGradients,
    LaunchMetadata,
    Outcome,
    Phases,
    RankFacts,
    Record,
    Resumption,
    StateBytes,
)
from dlscale.benchmarks.records.spool import CaseEnd, CaseResult, MeasuredWindow, RankSpool
from dlscale.benchmarks.records.target import Ended, Evaluation, Solution, TrainingLaunch
from dlscale.benchmarks.records.windows import Windows

T = TypeVar("T")
START_PHASES = ("start_up", "import_backend", "connect", "set_up")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTraining:
    """What is on the disk of a case's training after a launch of it."""

    step: int  # of the last saved state; 0 without one
    launches: list[TrainingLaunch] = field(default_factory=list)  # before this one


def assemble(
    case: Case,
    index: int,
    spools: Sequence[RankSpool],
    *,
    attempt: int,
    metadata: LaunchMetadata,
    failure: Failure | None,
    saved: SavedTraining | None = None,
) -> Record:
    """The record of the launch's case number `index`.

    `spools` are those of the workers, then those of the servers. `failure` is why the launch ended early; cases that
    had already ended keep their results, and a failed gate is a separate failure. `saved`: of a training with a
    target that has checkpoints. Raises ValueError, in one line, for events of which no record can be made.
    """
    workers = spools[: case.cell.num_ranks]
    gates = _gates(workers, index)
    failed = next((gate for gate in gates if not gate.passed), None)
    if failed:
        failure = _gate_failure(f"gate {failed.name} failed: {failed.problem}")
    elif all(spool.of(CaseEnd, index) for spool in workers):
        failure = None
    elif failure is None:
        message = "the launch ended without a result and without an error"
        failure = Failure(kind="error", rank=None, message=message)
    else:
        texts = {"message": failure.message, "log_tail": failure.log_tail}
        failure = failure.model_copy(update=redacted(texts))
    try:
        launches = _launches(workers, index, attempt=attempt, saved=saved, ended=not failure) if saved else []
        record = Record(
            **dict(metadata),
            **_results(workers, index, split=case.cell.split),
            case=case,
            attempt=attempt,
            evidence="emulated" if _share_machines(spools, case.cell.num_nodes) else "measured",
            ranks=_rank_facts(workers, index),
            servers=_rank_facts(spools[case.cell.num_ranks :], index),
            nodes=_nodes(spools, index),
            energy=_energy(spools, index),
            launches=launches,
            gates=gates,
            failure=failure,
        )
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
    if missing := record.missing_gates:
        failure = _gate_failure(f"gate {missing[0]} failed: it was never asked")
        return record.model_copy(update={"failure": failure})
    return record


def _gate_failure(message: str) -> Failure:
    return Failure(kind="gate", rank=None, message=message)


def _gates(workers: Sequence[RankSpool], index: int) -> list[Gate]:
    """The gates of the launch and of the case by the rank that wrote the most; one that failed on any rank has."""
    per_rank = [spool.shared(Gate, index) for spool in workers]
    failed = {gate.name: gate for own in per_rank for gate in own if not gate.passed}
    gates = [failed.get(gate.name, gate) for gate in max(per_rank, key=len)]
    gates += [gate for name, gate in failed.items() if name not in {gate.name for gate in gates}]
    return [gate.model_copy(update={"detail": redacted(gate.detail)}) for gate in gates]


def _results(workers: Sequence[RankSpool], index: int, *, split: int) -> dict[str, Any]:
    """What the workers measured, as fields of a record."""
    results = [spool.first(CaseResult, index) for spool in workers]

    def known(name: str) -> list[Any]:
        return [value for result in results if (value := getattr(result, name, None)) is not None]

    halos, dropped, ended = known("halos"), known("dropped"), workers[0].first(Ended, index)
    return {
        **({name: getattr(results[0], name) for name in Outcome.model_fields} if results[0] else {}),
        "backend_settings": redacted(_settings(results)),
        "phases": _phases(workers, index),
        "windows": _windows(workers, index),
        "gather_seconds": known("gather_seconds"),
        "halo_seconds": [each.seconds for each in halos],
        "halo_bytes": [each.num_bytes for each in halos],
        "halo_calls": [each.calls for each in halos[:split]],
        "checkpoints": workers[0].of(Checkpoint, index),
        "resumed": workers[0].first(Resumption, index),
        "solution": ended and Solution(**dict(ended), evaluations=workers[0].of(Evaluation, index)),
        # None also where a rank did not come to the end of the case.
        "late_gradients": LateGradients(computed=known("computed"), dropped=dropped)
        if len(dropped) == len(results)
        else None,
        "final_loss": [_finite(result.loss) if result else None for result in results],
        "skipped_samples": [result.skipped if result else None for result in results],
    }


def _settings(results: Sequence[CaseResult | None]) -> dict[str, Setting]:
    """Rank 0's settings; one that differs between ranks is listed with all its values."""
    per_rank = [result.settings if result else {} for result in results]
    settings = dict(per_rank[0])
    for name in settings:
        values = [of_rank.get(name) for of_rank in per_rank]
        if any(value != values[0] for value in values):
            settings[name] = " | ".join(str(value) for value in values)
    return settings


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _phases(workers: Sequence[RankSpool], index: int) -> Phases:
    def first_step(spool: RankSpool) -> float | None:
        first = spool.first(MeasuredWindow, index)
        return first.seconds if first and first.phase == "warmup" else None

    phases: dict[str, Any] = {
        name: [spool.seconds(name, index) for spool in workers] for name in Phases.model_fields
    }
    phases["first_step"] = [first_step(spool) for spool in workers]
    return Phases(**phases | {"audits": _known(phases["audits"])})


def _windows(workers: Sequence[RankSpool], index: int) -> Windows:
    """The windows that all ranks finished; starts count from the first window's earliest start on the same machine.

    A machine's monotonic clock counts from its boot, so one machine's origin says nothing on another. In a window of
    fixed time, each rank took as many steps as it could.
    """
    finished = list(zip(*(spool.of(MeasuredWindow, index) for spool in workers), strict=False))
    boots = [spool.info.boot_id if spool.info else "" for spool in workers]
    earliest: dict[str, float] = {}
    for boot, first in zip(boots, finished[0] if finished else (), strict=False):
        earliest[boot] = min(first.start, earliest.get(boot, first.start))
    num_warm_up = sum(windows[0].phase == "warmup" for windows in finished)

    def of_ranks(name: str, rows: Sequence[tuple[MeasuredWindow, ...]] = finished) -> list[list[Any]]:
        return [[getattr(row[rank], name) for row in rows] for rank in range(len(workers))]

    def of_steady(name: str) -> list[list[Any]] | None:
        """Of each rank's windows after the warm-up, if all have it."""
        lists = of_ranks(name, finished[num_warm_up:])
        return lists if any(lists) and all(row is not None for own in lists for row in own) else None

    foreign = [[window.foreign_cpu for window in row if window.foreign_cpu is not None] for row in finished]
    steps, buckets = of_steady("step_seconds"), of_steady("bucket_seconds")
    applied = _known(row[0].num_applied for row in finished)
    starts = zip(of_ranks("start"), boots, strict=True)
    columns = {
        "num_warm_up": num_warm_up,
        "num_steps": [max(window.num_steps for window in row) for row in finished],
        "start_seconds": [[start - earliest[boot] for start in own] for own, boot in starts],
        "seconds": of_ranks("seconds"),
        "num_applied": applied,
        "num_samples": _known(row[0].num_samples for row in finished),
        "foreign_cpu": _known(max(shares, default=None) for shares in foreign),
        "rank_steps": applied and of_ranks("num_steps"),
        "step_seconds": steps and [[*chain(*own)] for own in steps],
        "bucket_seconds": buckets and [[*zip(*own, strict=True)] for own in buckets],
    }
    return Windows.model_validate(columns)


def _known(column: Iterable[T]) -> list[T] | None:
    """The column; None if it has nothing."""
    values = list(column)
    return values if any(value is not None for value in values) else None


def _launches(
    workers: Sequence[RankSpool], index: int, *, attempt: int, saved: SavedTraining, ended: bool
) -> list[TrainingLaunch]:
    """The launches of a training, this one last if it took a step. One that began anew has none before it."""
    windows, resumed = _windows(workers, index), workers[0].first(Resumption, index)
    if not windows:
        return saved.launches
    first = resumed.step if resumed else 0
    after = first + windows.num_steps.cumsum()
    kept = int(after[-1]) if ended else max(first, saved.step)
    evaluations = workers[0].of(Evaluation, index)
    evaluating = [0.0, *(event.evaluating_seconds for event in evaluations if event.step <= kept)][-1]
    before = [] if first == 0 and any(launch.counts for launch in saved.launches) else saved.launches
    own = TrainingLaunch(
        attempt=attempt,
        first_step=first,
        counts=kept > first,
        start_seconds=_start_seconds(workers, index),
        restoring_seconds=resumed.seconds if resumed else 0.0,
        saving_seconds=math.fsum(event.seconds for event in workers[0].of(Checkpoint, index)),
        lost_seconds=math.fsum(windows.world[after > kept])
        + (evaluations[-1].evaluating_seconds - evaluating if evaluations else 0.0),
    )
    return [*before, own]


def _start_seconds(workers: Sequence[RankSpool], index: int) -> float | None:
    """From the launch to a case's first step, without gates: each phase on its slowest rank; None if unknown."""
    phases = [[spool.seconds(name, index) for spool in workers] for name in START_PHASES]
    known = [[seconds for seconds in phase if seconds is not None] for phase in phases]
    return math.fsum(map(max, known)) if all(len(phase) == len(workers) for phase in known) else None


def _rank_facts(spools: Sequence[RankSpool], index: int) -> list[RankFacts]:
    facts = []
    for spool in spools:
        if info := spool.info:
            known = dict(info) | dict(spool.first(CaseEnd, index) or ()) | {"rank": spool.rank}
            gpu, state = spool.first(GpuMemory, index), spool.first(StateBytes, index)
            facts.append(RankFacts.model_validate(known | {"gpu_memory": gpu, "state_bytes": state}))
    return facts


def _nodes(spools: Sequence[RankSpool], index: int) -> list[NodeFacts]:
    """Each node once, as its first rank saw it."""
    nodes: dict[str, NodeFacts] = {}
    for spool in spools:
        info, node, end = spool.info, spool.first(NodeSettings), spool.first(CaseEnd, index)
        if info and node:
            place = {"rank": spool.rank, "node": info.node, "load_after": end.load if end else None}
            place["throttled_after"] = end.num_throttled if end else 0
            nodes.setdefault(info.node, NodeFacts(**place, **redacted(dict(node))))
    return list(nodes.values())


def _energy(spools: Sequence[RankSpool], index: int) -> list[NodeEnergy]:
    """The energy counters of each node; none if no node reached the end of the case's windows.

    The first rank of a node reads them. If that is a server, they are not read, as servers have no windows.
    """
    if not any(spool.of(EnergyReading, index) for spool in spools):
        return []
    unread = EnergyReading(source=None, reason="the node's first rank did not train to the end")
    return [
        NodeEnergy(rank=spool.rank, node=info.node, **dict(reading) | {"reason": redacted(reading.reason)})
        for spool in spools
        if (info := spool.info) and info.local_rank == 0
        for reading in (spool.of(EnergyReading, index) or [unread])
    ]


def _share_machines(spools: Sequence[RankSpool], num_nodes: int) -> bool:
    """Whether some of the nodes are one machine."""
    machines = {info.boot_id for spool in spools if (info := spool.info)}
    return bool(machines) and len(machines) < num_nodes
