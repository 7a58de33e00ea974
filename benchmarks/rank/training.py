"""A training that is timed in windows: the real one, and the same on resident tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlscale.benchmarks.rank.audit import ReplayAudit
from dlscale.benchmarks.rank.case import CaseRun
from dlscale.benchmarks.rank.checkpoints import training_run
from dlscale.benchmarks.rank.deviation import bounds_for
from dlscale.benchmarks.rank.gates import training_gates
from dlscale.benchmarks.rank.measure import measure
from dlscale.benchmarks.rank.reference import AuditedTraining
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives import Trainer
from dlscale.collectives.algorithms.registry import round_steps
from dlscale.models.workload import Replica


def measure_training(case: CaseRun) -> list[Gate]:
    """Time the case's training, audited between its windows (`case.Measurement`)."""
    context, backend, cell = case.context, case.context.backend, case.cell
    with case.trainer() as (trainer, replicas):
        saving = training_run(case, trainer)
        passed = saving.passed if saving else lambda _: None
        audit = ReplayAudit(audited(case, trainer, replicas, make_reference=case.reference, passed=passed))
        steady = measure(
            trainer,
            context.control,
            context.spec.rules,
            deadline=case.deadline,
            budgeted=context.spec.budgeted,
            emit=case.emit,
            # A host runs ahead of a GPU: its stamps would not say when a step ended.
            stamped=cell.control == "train" and cell.device == "cpu" and not backend.capabilities.exchanges,
            counting=trainer if backend.asynchronous else None,
            passed=passed,
            audit=audit,
            round_steps=round_steps(cell.algorithm, cell.algorithm_options),
            carries=bool(trainer.settings().get("pipelined")),
            agree=trainer.agree if getattr(backend.served, "groups", 0) else None,
        )
        with case.auditing():
            gates = [*audit.gates(), *training_gates(backend, trainer, control=context.world)]
        if context.bucket_bytes is not None:
            from dlscale.benchmarks.rank.controls import bucket_bytes_of

            context.bucket_bytes[:] = bucket_bytes_of(trainer)
        case.end_training(trainer, replicas, steady=steady)
        return gates


def audited(case: CaseRun, trainer: Trainer, replicas: Sequence[Replica], **more: Any) -> AuditedTraining:
    """What an audit needs of a trainer that holds the first of `replicas`, and `more` of its fields."""
    context, cell = case.context, case.cell
    bounds = bounds_for(
        precision=cell.precision, compressed=context.backend.compressor is not None, device=cell.device
    )
    return AuditedTraining(
        trainer=trainer,
        backend=context.backend,
        control=context.world,
        shard=context.shard,
        bounds=bounds,
        num_skipped=lambda: sum(replica.num_skipped() for replica in replicas),
        aside=case.auditing,
        **more,
    )
