"""Assembles one record per case from the spools of one launch, even if the launch failed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from dlscale.base.definitions import Frozen, first_problem, where_given
from dlscale.base.redaction import redact, redacted
from dlscale.base.strings import Moment, Name, Text
from dlscale.benchmarks.records.cell import Case, Cell, Setting
from dlscale.benchmarks.records.nodes import Allocation, EnergyReading, NodeEnergy, NodeFacts, NodeSettings
from dlscale.benchmarks.records.record import (
    Checkpoint,
    Configuration,
    Evidence,
    Failure,
    Fingerprint,
    Gate,
    GpuMemory,
    LateGradients,
    Phases,
    RankFacts,
    Record,
    Resumption,
    StateBytes,
)
from dlscale.benchmarks.records.required_gates import missing_gates
from dlscale.benchmarks.records.spool import (
    CaseEnd,
    CaseResult,
    MeasuredWindow,
    PhaseName,
    RankInfo,
    RankSpool,
)
from dlscale.benchmarks.records.target import Ended, Evaluation, Solution, TrainingLaunch
from dlscale.benchmarks.records.windows import Windows

T = TypeVar("T")
START_PHASES: tuple[PhaseName, ...] = ("start_up", "import_backend", "connect", "set_up")


class LaunchMetadata(Frozen):
    """Facts common to the records of a launch that its ranks cannot know."""

    study: Name
    system: Name
    fingerprint: Fingerprint
    started_at: Moment
    order_seed: int
    command: Text
    oversubscribed: bool
    environment_variables: dict[Text, Text]
    configuration: Configuration | None = None
    allocation: Allocation | None = None
    # Of the list of gates that its cases must have passed.
    gates_version: Literal[2] | None = where_given(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTraining:
    """What is on the disk of a case's training after a launch of it."""

    step: int  # of the last saved state; 0 without one
    launches: list[TrainingLaunch] = field(default_factory=list)  # before this one


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Inside, what a model refuses is a ValueError of one line."""
    try:
        yield
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


@_in_one_line()
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
    workers, servers = spools[: case.cell.num_ranks], spools[case.cell.num_ranks :]
    gates, windows = _gates(workers, index), _windows(workers, index)
    ended = all(spool.of(CaseEnd, index) for spool in workers)
    failed = next((gate for gate in gates if not gate.passed), None)
    if failed:
        failure = Failure(kind="gate", rank=None, message=f"gate {failed.name} failed: {_compare(failed)}")
    elif ended:
        failure = None
    elif failure is None:
        failure = Failure(
            kind="error", rank=None, message="the launch ended without a result and without an error"
        )
    results = [spool.first(CaseResult, index) for spool in workers]
    first = results[0]
    exchanged = [result.halos for result in results if result and result.halos]
    record = Record(
        study=metadata.study,
        system=metadata.system,
        evidence=_evidence(spools, case.cell),
        case=case,
        attempt=attempt,
        started_at=metadata.started_at,
        order_seed=metadata.order_seed,
        fingerprint=metadata.fingerprint,
        configuration=metadata.configuration,
        allocation=metadata.allocation,
        command=redacted(metadata.command),
        oversubscribed=metadata.oversubscribed,
        ranks=[_rank_facts(info, spool, index) for spool in workers if (info := spool.info)],
        servers=[_rank_facts(info, spool, index) for spool in servers if (info := spool.info)],
        nodes=_nodes(spools, index),
        backend_settings=redacted(_settings(results)),
        environment_variables=redacted(metadata.environment_variables),
        phases=_phases(workers, index),
        steady=first.steady if first else None,
        windows=windows,
        bucket_bytes=first.bucket_bytes if first else [],
        gather_seconds=[
            result.gather_seconds for result in results if result and result.gather_seconds is not None
        ],
        halo_seconds=[halos.seconds for halos in exchanged],
        halo_bytes=[halos.num_bytes for halos in exchanged],
        halo_calls=[halos.calls for halos in exchanged[: case.cell.split]],
        copy_rates=[result.copy_rate for result in results if result and result.copy_rate is not None],
        energy=_energy(spools, index),
        checkpoints=workers[0].of(Checkpoint, index),
        resumed=workers[0].first(Resumption, index),
        solution=_solution(workers[0], index),
        launches=_launches(workers, index, attempt=attempt, saved=saved, ended=not failure) if saved else [],
        profile=first.profile if first else None,
        staleness=first.staleness if first else {},
        late_gradients=_late_gradients(results),
        final_loss=[_finite(result.loss) if result else None for result in results],
        skipped_samples=[result.skipped if result else None for result in results],
        gates=gates,
        gates_version=metadata.gates_version,
        failure=failure
        and failure.model_copy(
            update={"message": redact(failure.message), "log_tail": redact(failure.log_tail)}
        ),
    )
    if missing := missing_gates(record):
        failure = Failure(kind="gate", rank=None, message=f"gate {missing[0]} failed: it was never asked")
        return record.model_copy(update={"failure": failure})
    return record


def _late_gradients(results: Sequence[CaseResult | None]) -> LateGradients | None:
    """None also where a rank did not come to the end of the case."""
    computed = [result.computed for result in results if result and result.computed is not None]
    dropped = [result.dropped for result in results if result and result.dropped is not None]
    return LateGradients(computed=computed, dropped=dropped) if len(dropped) == len(results) else None


def _gates(spools: Sequence[RankSpool], index: int) -> list[Gate]:
    """The gates of the launch and of the case. Ranks agree on them, so the rank that wrote the most is used."""
    per_rank = [
        [event for place, event in spool.events if isinstance(event, Gate) and place in (None, index)]
        for spool in spools
    ]
    return [gate.model_copy(update={"detail": redact(gate.detail)}) for gate in max(per_rank, key=len)]


def _compare(gate: Gate) -> str:
    value = "not finite" if gate.value is None else f"{gate.value:.3g}"
    return f"{gate.detail}: {value}" + ("" if gate.tolerance is None else f", allowed {gate.tolerance:.3g}")


def _windows(spools: Sequence[RankSpool], index: int) -> Windows:
    """The windows that all ranks finished; starts count from the first window's earliest start on the same machine.

    A machine's monotonic clock counts from its boot, so one machine's origin says nothing on another. In a window of
    fixed time, each rank took as many steps as it could.
    """
    finished = list(zip(*(spool.of(MeasuredWindow, index) for spool in spools), strict=False))
    boots = [spool.info.boot_id if spool.info else "" for spool in spools]
    earliest: dict[str, float] = {}
    for boot, first in zip(boots, finished[0] if finished else (), strict=False):
        earliest[boot] = min(first.start, earliest.get(boot, first.start))
    ranks = [[windows[rank] for windows in finished] for rank in range(len(spools))]
    num_warm_up = sum(windows[0].phase == "warmup" for windows in finished)
    steady = [own[num_warm_up:] for own in ranks]
    applied = _known(windows[0].num_applied for windows in finished)
    return Windows.model_validate(
        {
            "num_warm_up": num_warm_up,
            "num_steps": [max(window.num_steps for window in windows) for windows in finished],
            "start_seconds": [
                [window.start - earliest[boot] for window in own]
                for own, boot in zip(ranks, boots, strict=True)
            ],
            "seconds": [[window.seconds for window in own] for own in ranks],
            "num_applied": applied,
            "num_samples": _known(windows[0].num_samples for windows in finished),
            "foreign_cpu": _known(
                max(
                    (window.foreign_cpu for window in windows if window.foreign_cpu is not None), default=None
                )
                for windows in finished
            ),
            "rank_steps": applied and [[window.num_steps for window in own] for own in ranks],
            "step_seconds": _of_all(
                [[window.step_seconds for window in own] for own in steady], lambda rows: [*chain(*rows)]
            ),
            "bucket_seconds": _of_all(
                [[window.bucket_seconds for window in own] for own in steady],
                lambda rows: [list(column) for column in zip(*rows, strict=True)],
            ),
        }
    )


def _known(column: Iterable[T]) -> list[T] | None:
    """The column; None if it has nothing."""
    values = list(column)
    return values if any(value is not None for value in values) else None


def _of_all(
    ranks: list[list[list[float] | None]], join: Callable[[list[list[float]]], list[Any]]
) -> list[list[Any]] | None:
    """For each rank its windows' lists, joined; None if not all were measured."""
    if not any(ranks) or any(row is None for own in ranks for row in own):
        return None
    return [join([row for row in own if row is not None]) for own in ranks]


def _solution(spool: RankSpool, index: int) -> Solution | None:
    ended = spool.first(Ended, index)
    return Solution(**dict(ended), evaluations=spool.of(Evaluation, index)) if ended else None


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
    """From the launch to a case's first step, without gates: each phase on its slowest rank."""
    slowest = []
    for name in START_PHASES:
        known = [seconds for spool in workers if (seconds := spool.seconds(name, index)) is not None]
        if len(known) < len(workers):
            return None
        slowest.append(max(known))
    return math.fsum(slowest)


def _phases(spools: Sequence[RankSpool], index: int) -> Phases:
    def first_step(spool: RankSpool) -> float | None:
        windows = spool.of(MeasuredWindow, index)
        return next((window.seconds for window in windows if window.phase == "warmup"), None)

    return Phases(
        start_up=[spool.seconds("start_up") for spool in spools],
        import_backend=[spool.seconds("import_backend") for spool in spools],
        connect=[spool.seconds("connect") for spool in spools],
        gates=[spool.seconds("gates") for spool in spools],
        first_step=[first_step(spool) for spool in spools],
    )


def _rank_facts(info: RankInfo, spool: RankSpool, index: int) -> RankFacts:
    end = spool.first(CaseEnd, index)
    place = info.model_dump(exclude={"pid"}) | {"rank": spool.rank}
    return RankFacts(
        **place,
        peak_rss_bytes=end.peak_rss_bytes if end else 0,
        window_rss_bytes=end.window_rss_bytes if end else None,
        gpu_memory=spool.first(GpuMemory, index),
        state_bytes=spool.first(StateBytes, index),
    )


def _nodes(spools: Sequence[RankSpool], index: int) -> list[NodeFacts]:
    """Each node once, as its first rank saw it. A scheduler's nodes may share one host, which has one name."""
    nodes: dict[tuple[str, str | None], NodeFacts] = {}
    for spool in spools:
        info, node = spool.info, spool.first(NodeSettings)
        if info and node:
            end = spool.first(CaseEnd, index)
            facts = NodeFacts(
                rank=spool.rank, node=info.node, load_after=end.load if end else None, **redacted(dict(node))
            )
            nodes.setdefault((facts.node, facts.switch_path), facts)
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


def _settings(results: Sequence[CaseResult | None]) -> dict[str, Setting]:
    """Rank 0's settings; one that differs between ranks is listed with all its values."""
    per_rank = [result.settings if result else {} for result in results]
    settings = dict(per_rank[0])
    for name in settings:
        values = [settings_of_rank.get(name) for settings_of_rank in per_rank]
        if any(value != values[0] for value in values):
            settings[name] = " | ".join(str(value) for value in values)
    return settings


def _evidence(spools: Sequence[RankSpool], cell: Cell) -> Evidence:
    """Measured, unless several nodes share a machine."""
    machines = {info.boot_id for spool in spools if (info := spool.info)}
    return "emulated" if machines and len(machines) < cell.num_nodes else "measured"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
