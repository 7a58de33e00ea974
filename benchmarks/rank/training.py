"""A training that is timed in windows: the real thing, and the same on resident tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dlscale.benchmarks.rank.audit import AuditedTraining, TrainingAudit
from dlscale.benchmarks.rank.buckets import bucket_bytes_of
from dlscale.benchmarks.rank.case import CaseRun
from dlscale.benchmarks.rank.checkpoints import TrainingRun, training_run
from dlscale.benchmarks.rank.checks import make_audit, training_gates
from dlscale.benchmarks.rank.deviation import bounds_for
from dlscale.benchmarks.rank.measure import measure, step_timer_for
from dlscale.benchmarks.rank.turns import are_grouped
from dlscale.benchmarks.records.record import Gate
from dlscale.benchmarks.records.spool import MeasuredWindow
from dlscale.collectives import CountingTrainer, Trainer
from dlscale.collectives.algorithms.registry import round_steps
from dlscale.collectives.backend import GroupedTrainer
from dlscale.models.workload import Replica


def measure_training(case: CaseRun) -> list[Gate]:
    """Time the case's training, audited between its windows (`case.Measurement`)."""
    context, backend, cell = case.context, case.context.backend, case.cell
    replicas: list[Replica] = []
    trainer = context.distribute(case.remembering(replicas))
    settings = trainer.settings()

    def emit(window: MeasuredWindow) -> None:
        if backend.in_step and backend.num_accepted is not None:
            window = window.model_copy(update={"num_samples": window.num_steps * case.step_samples()})
        case.emit(window)
        audit.count(window.num_steps)

    try:
        progress = training_run(case, trainer)
        audit = _audit(case, trainer, progress, replicas)
        steady = measure(
            trainer,
            context.control,
            context.rules,
            deadline=case.deadline,
            budgeted=case.budgeted,
            emit=emit,
            step_timer=step_timer_for(cell, exchanges=backend.capabilities.exchanges),
            counting=None if backend.in_step else cast(CountingTrainer, trainer),
            progress=progress,
            audit=audit,
            round_steps=round_steps(cell.algorithm, cell.algorithm_options),
            carries=bool(settings.get("pipelined")),
            agree=cast(GroupedTrainer, trainer).agree if are_grouped(backend.served) else None,
        )
        case.write_observed()
        results = [
            *audit.gates(),
            *training_gates(backend, trainer, control=context.world),
        ]
        if context.bucket_bytes is not None:
            context.bucket_bytes[:] = bucket_bytes_of(trainer)
        case.write_result(trainer, replicas, steady=steady)
        return results
    finally:
        trainer.close()


def _audit(
    case: CaseRun, trainer: Trainer, progress: TrainingRun | None, replicas: Sequence[Replica]
) -> TrainingAudit:
    """What looks at the trainer, which holds the first of `replicas`, between its windows; collective."""
    context, backend = case.context, case.context.backend
    compressed = backend.compressor is not None
    training = AuditedTraining(
        trainer=trainer,
        backend=backend,
        make_reference=lambda: case.reference(seed=context.seed + context.shard.index),
        control=context.world,
        shard=context.shard,
        bounds=bounds_for(precision=case.cell.precision, compressed=compressed, device=case.cell.device),
        passed=progress.passed if progress else lambda _: None,
        num_skipped=lambda: sum(replica.num_skipped() for replica in replicas),
        aside=context.aside,
    )
    return make_audit(training)
