"""Which gates and which audit a training has, by how its ranks exchange what they learn. All of it is collective."""

from __future__ import annotations

from typing import Any

from dlscale.benchmarks.rank.audit import AuditedTraining, ReplayAudit
from dlscale.benchmarks.rank.compressed import compressed_gate
from dlscale.benchmarks.rank.gates import finite_gate, gradient_gate, identity_gate, sharding_gate
from dlscale.benchmarks.rank.rounds import RoundsAudit, rounds_gate
from dlscale.benchmarks.rank.server_audit import InStepAudit, ServerAudit
from dlscale.benchmarks.rank.turns import turns_gate
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.backend import Backend, Trainer
from dlscale.collectives.sharding import NONE
from dlscale.models.workload import ReplicaFactory, Shard

StepsAudit = RoundsAudit | ReplayAudit | ServerAudit


def update_gates(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> list[Gate]:
    """Before any timing: one update of the weights is what the gradients ask for; and of shards the first ones."""
    gate = gradient_gate
    if backend.rounds is not None:
        gate = rounds_gate
    elif backend.compressor:
        gate = compressed_gate
    elif backend.asynchronous:
        gate = turns_gate
    gates = gate(backend, factory, control=control, shard=shard, seed=seed, precision=precision)
    if backend.shard != NONE:
        gates.append(
            sharding_gate(backend, factory, control=control, shard=shard, seed=seed, precision=precision)
        )
    return gates


def training_gates(backend: Backend, trainer: Trainer, *, control: Any) -> list[Gate]:
    """After the windows: the loss is finite, and ranks that exchange gradients agree on the weights.

    Asynchronous ranks need not agree.
    """
    results = [finite_gate(trainer, control=control)]
    if backend.asynchronous:
        results.append(
            Gate.unchecked("identity", "not checked: no rank waits for another, and weights differ")
        )
    elif backend.capabilities.exchanges:
        results.append(identity_gate(trainer.weights(), control=control))
    return results


def make_audit(training: AuditedTraining) -> StepsAudit:
    """The audit of a trainer, before its first step."""
    if training.backend.rounds is not None:
        return RoundsAudit(training)
    if training.backend.capabilities.servers:
        return InStepAudit(training) if training.backend.in_step else ServerAudit(training)
    return ReplayAudit(training)
