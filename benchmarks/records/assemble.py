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
from dlscale.base.strings import redact
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.record import (
    Checkpoint,
    Ended,
    EnergyReading,
    Evaluation,
    Failure,
    Gate,
    GpuMemory,
    LaunchMetadata,
    NodeFacts,
    NodeSettings,
    Outcome,
    Phases,
    RankFacts,
    Record,
    Resumption,
    Solution,
    StateBytes,
)
from dlscale.benchmarks.records.spool import CaseEnd, CaseResult, MeasuredWindow, Phase, RankSpool

PER_RANK = ("skipped_samples", "gather_seconds", "halo_seconds", "halo_bytes", "halo_calls")  # of CaseResult


def assemble(
    case: Case,
    index: int,
    spools: Sequence[RankSpool],
    *,
    attempt: int,
    metadata: LaunchMetadata,
    failure: Failure | None,
) -> Record:
    """The record of the launch's case number `index`.

    `spools` are those of the workers, then those of the servers. `failure` is why the launch ended early; cases that
    had already ended keep their results, and a failed gate is a separate failure.
    Raises ValueError, in one line, for events of which no record can be made.
    """
    cell = case.cell
    workers = spools[: cell.num_ranks]
    ranks, nodes, energy = _places(spools, index)
    gates = _gates(workers, index)
    if failed := next((gate for gate in gates if not gate.passed), None):
        value = "not finite" if failed.value is None else f"{failed.value:.3g}"
        allowed = "" if failed.tolerance is None else f", allowed {failed.tolerance:.3g}"
        message = f"gate {failed.name} failed: {failed.detail}: {value}{allowed}"
        failure = Failure(kind="gate", rank=None, message=message)
    elif all(spool.of(CaseEnd, index) for spool in workers):
        failure = None
    elif failure is None:
        message = "the launch ended without a result and without an error"
        failure = Failure(kind="error", rank=None, message=message)
    else:
        texts = {"message": failure.message, "log_tail": failure.log_tail}
        failure = failure.model_copy(update=redact(texts))
    machines = {rank.boot_id for rank in ranks}
    try:
        record = Record.model_validate(
            {
                **dict(metadata),
                **_results(workers, index, split=cell.split),
                "case": case,
                "attempt": attempt,
                "evidence": "emulated" if 0 < len(machines) < cell.num_nodes else "measured",
                "ranks": [rank for rank in ranks if rank.rank < cell.num_ranks],
                "servers": [rank for rank in ranks if rank.rank >= cell.num_ranks],
                "nodes": nodes,
                "phases": _phases(workers, index),
                "windows": _windows(workers, index),
                "energy": energy,
                "gates": gates,
                "failure": failure,
            }
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
    return [gate.model_copy(update={"detail": redact(gate.detail)}) for gate in gates.values()]


def _results(workers: Sequence[RankSpool], index: int, *, split: int) -> dict[str, Any]:
    """What the workers measured beside their windows, as fields of a record.

    A setting of the backend that differs between ranks is listed with all its values.
    """
    results = [result for spool in workers if (result := spool.first(CaseResult, index))]
    of_ranks = {name: [getattr(result, name) for result in results] for name in PER_RANK}
    known = {name: [value for value in values if value is not None] for name, values in of_ranks.items()}
    known["halo_calls"] = known["halo_calls"][:split]
    settings = dict(results[0].settings) if results else {}
    for name in settings:
        values = [result.settings.get(name) for result in results]
        if any(value != values[0] for value in values):
            settings[name] = " | ".join(str(value) for value in values)
    first, ended = workers[0], workers[0].first(Ended, index)
    return {
        **known,
        **({name: getattr(results[0], name) for name in Outcome.model_fields} if results else {}),
        "backend_settings": redact(settings),
        "checkpoints": first.of(Checkpoint, index),
        "resumed": first.first(Resumption, index),
        "solution": ended and Solution(**dict(ended), evaluations=first.of(Evaluation, index)),
    }


def _phases(workers: Sequence[RankSpool], index: int) -> dict[str, Any]:
    """Seconds of the first phase of each name, by rank; a column that findings may do without only if it has any."""
    columns: dict[str, list[float | None]] = {name: [None] * len(workers) for name in Phases.model_fields}
    for place, spool in enumerate(workers):
        for phase in reversed(spool.of(Phase, index)):
            columns[phase.name][place] = phase.seconds
        window = spool.first(MeasuredWindow, index)
        columns["first_step"][place] = window.seconds if window and window.phase == "warmup" else None
    optional = ("set_up", "audits")
    return {
        name: column
        for name, column in columns.items()
        if name not in optional or any(value is not None for value in column)
    }


def _windows(workers: Sequence[RankSpool], index: int) -> dict[str, Any]:
    """The windows that all ranks finished; starts count from the first window's earliest start on the same machine.

    A machine's monotonic clock counts from its boot, so one machine's origin says nothing on another. In a window of
    fixed time, each rank took as many steps as it could.
    """
    finished = list(zip(*(spool.of(MeasuredWindow, index) for spool in workers), strict=False))
    ranks = [[row[place] for row in finished] for place in range(len(workers))]  # the windows of each
    boots = [spool.info.boot_id if spool.info else "" for spool in workers]
    origins: dict[str, float] = {}
    for own, boot in zip(ranks, boots, strict=True):
        origins[boot] = min([origins.get(boot, math.inf), *(window.start for window in own[:1])])
    num_warm_up = sum(window.phase == "warmup" for window in ranks[0])
    steady = [own[num_warm_up:] for own in ranks]
    columns: dict[str, Any] = {
        "num_warm_up": num_warm_up,
        "num_steps": [max(window.num_steps for window in row) for row in finished],
        "start_seconds": [
            [window.start - origins[boot] for window in own] for own, boot in zip(ranks, boots, strict=True)
        ],
        "seconds": [[window.seconds for window in own] for own in ranks],
    }
    if any(row[0].num_applied is not None for row in finished):
        columns["num_applied"] = [row[0].num_applied for row in finished]
        columns["rank_steps"] = [[window.num_steps for window in own] for own in ranks]
    shares = [[window.foreign_cpu for window in row if window.foreign_cpu is not None] for row in finished]
    if any(shares):
        columns["foreign_cpu"] = [max(own, default=None) for own in shares]
    if steady[0] and all(window.step_seconds is not None for window in chain(*steady)):
        columns["step_seconds"] = [[*chain(*(window.step_seconds or () for window in own))] for own in steady]
    if steady[0] and all(window.bucket_seconds is not None for window in chain(*steady)):
        columns["bucket_seconds"] = [
            [*zip(*(window.bucket_seconds or () for window in own), strict=True)] for own in steady
        ]
    return columns


def _places(
    spools: Sequence[RankSpool], index: int
) -> tuple[list[RankFacts], list[NodeFacts], list[EnergyReading]]:
    """The ranks, each node once as its first rank saw it, and the energy counters, which the first ranks read.

    If the first rank of a node is a server, its counters are not read, as servers have no windows.
    """
    ranks, nodes, energy = list[RankFacts](), dict[str, NodeFacts](), list[EnergyReading]()
    for spool in spools:
        info, end = spool.info, spool.first(CaseEnd, index)
        if info is None:
            continue
        memory = {"gpu_memory": spool.first(GpuMemory, index), "state_bytes": spool.first(StateBytes, index)}
        known = dict(info) | dict(end or ()) | memory | {"rank": spool.rank}
        ranks.append(RankFacts.model_validate(known))
        if (node := spool.first(NodeSettings)) and info.node not in nodes:
            nodes[info.node] = NodeFacts(
                node=info.node,
                load_after=end and end.load,
                throttled_after=end.num_throttled if end else 0,
                **redact(dict(node)),
            )
        for reading in spool.of(EnergyReading, index) if info.local_rank == 0 else ():
            place = {"rank": spool.rank, "node": info.node, "reason": redact(reading.reason)}
            energy.append(reading.model_copy(update=place))
    return ranks, list(nodes.values()), energy
