"""Assembles one record per case from the spools of one launch, even if the launch failed.

What ranks and launchers wrote is redacted here; `LaunchMetadata` is when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

from pydantic import ValidationError

from dlscale.base.definitions import first_problem
from dlscale.base.redaction import redacted
from dlscale.benchmarks.records.cell import Case, Setting
from dlscale.benchmarks.records.nodes import EnergyReading, NodeEnergy, NodeFacts, NodeSettings
from dlscale.benchmarks.records.record import (
    Checkpoint,
    Ended,
    Evaluation,
    Failure,
    Gate,
    GpuMemory,
    LaunchMetadata,
    Outcome,
    Phases,
    RankFacts,
    Record,
    Resumption,
    Solution,
    StateBytes,
    TrainingLaunch,
)
from dlscale.benchmarks.records.spool import CaseEnd, CaseResult, MeasuredWindow, RankSpool
from dlscale.benchmarks.records.windows import Windows

START_PHASES = ("start_up", "import_backend", "connect", "set_up")
PER_RANK = ("skipped_samples", "gather_seconds", "halo_seconds", "halo_bytes", "halo_calls")  # of CaseResult
UNREAD = EnergyReading(source=None, reason="the node's first rank did not train to the end")


def assemble(
    case: Case,
    index: int,
    spools: Sequence[RankSpool],
    *,
    attempt: int,
    metadata: LaunchMetadata,
    failure: Failure | None,
    saved_step: int | None = None,
    earlier: Sequence[TrainingLaunch] = (),
) -> Record:
    """The record of the launch's case number `index`.

    `spools` are those of the workers, then those of the servers. `failure` is why the launch ended early; cases that
    had already ended keep their results, and a failed gate is a separate failure. Of a training with a target that has
    checkpoints, `saved_step` is that of the last one, 0 without one, and `earlier` the launches before this one of
    which the state stayed.
    Raises ValueError, in one line, for events of which no record can be made.
    """
    cell = case.cell
    workers, servers = spools[: cell.num_ranks], spools[cell.num_ranks :]
    gates = _gates(workers, index)
    if failed := next((gate for gate in gates if not gate.passed), None):
        failure = Failure(kind="gate", rank=None, message=f"gate {failed.name} failed: {failed.problem}")
    elif all(spool.of(CaseEnd, index) for spool in workers):
        failure = None
    elif failure is None:
        message = "the launch ended without a result and without an error"
        failure = Failure(kind="error", rank=None, message=message)
    else:
        texts = {"message": failure.message, "log_tail": failure.log_tail}
        failure = failure.model_copy(update=redacted(texts))
    machines = {spool.info.boot_id for spool in spools if spool.info}
    try:
        launches, own = list(earlier), _launch(workers, index)
        if saved_step is not None and (failure is None or saved_step > own.first_step):
            # One that began anew has none before it.
            launches = [*(launches if own.first_step else []), own]
        record = Record(
            **dict(metadata),
            **_results(workers, index, split=cell.split),
            case=case,
            attempt=attempt,
            evidence="emulated" if 0 < len(machines) < cell.num_nodes else "measured",
            ranks=_rank_facts(workers, index),
            servers=_rank_facts(servers, index),
            nodes=_nodes(spools, index),
            windows=_windows(workers, index),
            energy=_energy(spools, index),
            launches=launches,
            gates=gates,
            failure=failure,
        )
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
    if missing := record.missing_gates:
        failure = Failure(kind="gate", rank=None, message=f"gate {missing[0]} failed: it was never asked")
        return record.model_copy(update={"failure": failure})
    return record


def _gates(workers: Sequence[RankSpool], index: int) -> list[Gate]:
    """The gates of the launch and of the case by the rank that wrote the most; one that failed on any rank has."""
    per_rank = [spool.of(Gate, index) for spool in workers]
    gates = {gate.name: gate for gate in max(per_rank, key=len)}
    gates |= {gate.name: gate for own in per_rank for gate in own if not gate.passed}
    return [gate.model_copy(update={"detail": redacted(gate.detail)}) for gate in gates.values()]


def _results(workers: Sequence[RankSpool], index: int, *, split: int) -> dict[str, Any]:
    """What the workers measured beside their windows, as fields of a record."""
    results = [result for spool in workers if (result := spool.first(CaseResult, index))]
    of_ranks = {name: [getattr(result, name) for result in results] for name in PER_RANK}
    known = {name: [value for value in values if value is not None] for name, values in of_ranks.items()}
    known["halo_calls"] = known["halo_calls"][:split]
    first, ended = workers[0], workers[0].first(Ended, index)
    return {
        **known,
        **({name: getattr(results[0], name) for name in Outcome.model_fields} if results else {}),
        "backend_settings": redacted(_settings(results)),
        "phases": _phases(workers, index),
        "checkpoints": first.of(Checkpoint, index),
        "resumed": first.first(Resumption, index),
        "solution": ended and Solution(**dict(ended), evaluations=first.of(Evaluation, index)),
    }


def _settings(results: Sequence[CaseResult]) -> dict[str, Setting]:
    """The backend's settings; one that differs between ranks is listed with all its values."""
    settings = dict(results[0].settings) if results else {}
    for name in settings:
        values = [result.settings.get(name) for result in results]
        if any(value != values[0] for value in values):
            settings[name] = " | ".join(str(value) for value in values)
    return settings


def _phases(workers: Sequence[RankSpool], index: int) -> Phases:
    firsts = [spool.first(MeasuredWindow, index) for spool in workers]
    phases: dict[str, Any] = {
        name: [spool.seconds(name, index) for spool in workers] for name in Phases.model_fields
    }
    phases["first_step"] = [first.seconds if first and first.phase == "warmup" else None for first in firsts]
    return Phases(**phases | {"audits": _known(phases["audits"])})


def _known(column: list[Any]) -> list[Any] | None:
    """The column; None if it has nothing."""
    return column if any(value is not None for value in column) else None


def _windows(workers: Sequence[RankSpool], index: int) -> Windows:
    """The windows that all ranks finished; starts count from the first window's earliest start on the same machine.

    A machine's monotonic clock counts from its boot, so one machine's origin says nothing on another. In a window of
    fixed time, each rank took as many steps as it could.
    """
    finished = list(zip(*(spool.of(MeasuredWindow, index) for spool in workers), strict=False))
    num_warm_up = sum(windows[0].phase == "warmup" for windows in finished)

    def of_ranks(name: str, first: int = 0) -> list[list[Any]]:
        return [[getattr(row[rank], name) for row in finished[first:]] for rank in range(len(workers))]

    def of_steady(name: str) -> list[list[Any]] | None:
        columns = of_ranks(name, num_warm_up)
        return columns if columns[0] and all(value is not None for own in columns for value in own) else None

    boots = [spool.info.boot_id if spool.info else "" for spool in workers]
    starts = of_ranks("start")
    if finished:
        firsts = {
            boot: min(own[0] for own, at in zip(starts, boots, strict=True) if at == boot) for boot in boots
        }
        starts = [[start - firsts[boot] for start in own] for own, boot in zip(starts, boots, strict=True)]
    shares = [[window.foreign_cpu for window in row if window.foreign_cpu is not None] for row in finished]
    applied = _known([row[0].num_applied for row in finished])
    steps, buckets = of_steady("step_seconds"), of_steady("bucket_seconds")
    return Windows.model_validate(
        {
            "num_warm_up": num_warm_up,
            "num_steps": [max(window.num_steps for window in row) for row in finished],
            "start_seconds": starts,
            "seconds": of_ranks("seconds"),
            "num_applied": applied,
            "foreign_cpu": _known([max(own, default=None) for own in shares]),
            "rank_steps": applied and of_ranks("num_steps"),
            "step_seconds": steps and [[*chain(*own)] for own in steps],
            "bucket_seconds": buckets and [[*zip(*own, strict=True)] for own in buckets],
        }
    )


def _launch(workers: Sequence[RankSpool], index: int) -> TrainingLaunch:
    """What this launch of a training took; each phase of its start on the slowest rank."""
    phases = [[spool.seconds(name, index) for spool in workers] for name in START_PHASES]
    known = [[seconds for seconds in phase if seconds is not None] for phase in phases]
    resumed = workers[0].first(Resumption, index)
    return TrainingLaunch(
        first_step=resumed.step if resumed else 0,
        start_seconds=math.fsum(map(max, known)) if known == phases else None,
        restoring_seconds=resumed.seconds if resumed else 0.0,
        saving_seconds=math.fsum(event.seconds for event in workers[0].of(Checkpoint, index)),
    )


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
    return [
        NodeEnergy(rank=spool.rank, node=info.node, **dict(reading) | {"reason": redacted(reading.reason)})
        for spool in spools
        if (info := spool.info) and info.local_rank == 0
        for reading in (spool.of(EnergyReading, index) or [UNREAD])
    ]
