"""Checks of correctness that come before any timing, and after the windows. All functions are collective.

A reference never touches the backend (`reference.py`). Of ranks that share samples, outputs and the mean gradient, over
the training's carrier, are compared with those of a replica that has whole samples, from the same weights, in float64,
where nothing but a fault is left. The tolerances are derived in docs/measurements/audits.md.
"""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from dlscale.benchmarks.rank.audit import Judged, Replay, turns
from dlscale.benchmarks.rank.deviation import (
    EXACT,
    ROUNDED,
    Snapshot,
    bounds_for,
    deviation,
    largest_difference,
)
from dlscale.benchmarks.rank.reference import AuditedTraining
from dlscale.benchmarks.records.record import Gate
from dlscale.benchmarks.records.spool import boot_id
from dlscale.collectives.backend import Backend, Trainer
from dlscale.models.workload import WEIGHT, Replica, ReplicaFactory, Shard, Weights

# Share of a tensor's change: rounding of the sum over ranks and of a repeated backward pass. TF32 keeps 10 bits after
# the point, bfloat16 7.
TOLERANCE = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 1e-2}
NUM_SAMPLES = 2  # of a replica at most: one device has them whole, and in float64
FACTORS = (1.0, 0.875)  # of the weights in each round: halos of the round before would show; exact
SHIFT = 3.0  # added to batch norm's shifts, so that few values lie next to the jump of ReLU, where rounding moves them
SPLIT_TOLERANCE = 1e-5
LATE_SECONDS = 0.005  # by which a rank comes to a barrier that must hold the others


def control_gate(control: Any) -> Gate:
    """The control plane, by which ranks agree on everything else, reaches all ranks and holds them at its barrier."""
    rank, ranks = control.Get_rank(), range(control.Get_size())
    wrong = control.allgather(rank) != list(ranks) or control.allreduce(rank) != sum(ranks)
    control.Barrier()
    if rank == 0:
        time.sleep(LATE_SECONDS)
    came = time.monotonic()
    control.Barrier()
    left = time.monotonic()
    late, machine = control.bcast((came, boot_id()))  # clocks of two machines tell nothing
    wrong |= machine == boot_id() and left < late
    detail = "ranks that a gather does not reach, or that a barrier does not hold"
    return Gate.at_most(0.0, float(sum(control.allgather(wrong))), name="control", detail=detail)


def update_gates(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> list[Gate]:
    """Ranks begin with rank 0's weights, and steps of plain SGD with rate 1 change them by the backend's rule.

    Every rank starts from other weights, so that the first gate sees whose were broadcast. Over `none` weights differ.
    Where no rank waits for another each has its turn, and the first and the last rank both go first once: after steps
    that long the gradients of others may vanish, and would show nothing.
    """
    order, compressed = turns(backend, control.Get_size()), backend.compressor is not None
    bounds = ROUNDED if compressed else EXACT
    worst = Judged(bounds.share if compressed else TOLERANCE[precision])
    # The turns that show all of a rule: a whole round, and that gradients are late rather than skipped.
    num_turns = backend.rounds.for_gate().interval + 1 if backend.rounds is not None else 1 + backend.delay
    gates: list[Gate] = []
    for first in dict.fromkeys((0, len(order) - 1)):
        trainer = backend.distribute(factory, shard=shard, seed=seed + shard.index, gate=True)
        fresh = factory(shard=shard, seed=seed, gate=True)
        training = AuditedTraining(
            trainer=trainer,
            backend=backend,
            make_reference=lambda fresh=fresh: fresh,  # type: ignore[misc]
            control=control,
            shard=shard,
            bounds=bounds_for(precision=precision, compressed=compressed),
        )
        replay = Replay(training, {"gradient": worst}, gate=True)

        def measure(*seen: Snapshot, replay: Replay = replay) -> dict[str, float]:
            noisy = replay.reference.noisy if compressed else ()
            return {"gradient": deviation(*seen, bounds=bounds, noisy=noisy)[0]}

        try:
            if backend.capabilities.exchanges and not gates:
                gates.append(identity_gate(trainer.weights(), control=control, begun=fresh.weights()))
            for turn in (*order[first:], *order[:first]):
                for _ in range(num_turns):
                    replay.take_turn(turn, measure)
        finally:
            trainer.close()
    detail = "change of each tensor by plain SGD against the rule's by the ranks' own gradients"
    return [*gates, worst.gate("gradient", detail, control=control)]


def training_gates(backend: Backend, trainer: Trainer, *, control: Any) -> list[Gate]:
    """After the windows: the loss is finite, and ranks that exchange gradients agree on the weights, bit by bit."""
    losses = control.allgather(trainer.loss())
    bad = [rank for rank, loss in enumerate(losses) if not math.isfinite(loss)]
    gates = [Gate.none_of(bad, name="finite_loss", detail="ranks whose loss is not finite")]
    if backend.asynchronous:
        gates.append(Gate.unchecked("identity", "not checked: no rank waits for another, and weights differ"))
    elif backend.capabilities.exchanges:
        gates.append(identity_gate(trainer.weights(), control=control))
    return gates


def identity_gate(weights: Weights, *, control: Any, begun: Weights | None = None) -> Gate:
    """All ranks hold the same trainable weights, bit by bit: rank 0's, or those that it has `begun` with."""
    own = _digest(weights)
    held = control.allgather((own, _digest(begun) if begun else own))
    differing = [rank for rank, (digest, _) in enumerate(held) if digest != held[0][1]]
    name, whose = ("broadcast", "those that rank 0 began with") if begun else ("identity", "rank 0's")
    return Gate.none_of(differing, name=name, detail=f"ranks whose weights differ from {whose}")


def _digest(weights: Weights) -> str:
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.tobytes())
    return digest.hexdigest()


def split_gate(factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int) -> Gate:
    """Outputs and gradients of NUM_SAMPLES in float64, which are added up over rounds of other weights; collective."""
    shared = factory(shard=shard, seed=seed, gate=True)
    top = shard.neighbours is not None and shard.neighbours.index == 0
    whole = factory(shard=replace(shard, neighbours=None), seed=seed, gate=True) if top else None
    first = [
        weight + np.float32(SHIFT) if "norm" in name and name.endswith("bias") else weight
        for weight, name in zip(shared.weights(), shared.names(), strict=True)
    ]
    output = 0.0
    totals = [[np.zeros(weight.shape) for weight in first] for _ in range(2)]  # of parts, of whole samples
    for factor in FACTORS:
        weights = [weight * weight.dtype.type(factor) for weight in first]
        own = _outputs(shared, weights, totals[0])
        if whole:
            expected = _outputs(whole, weights, totals[1])
            output = max(output, *map(largest_difference, own, expected))
    for total, count in zip(totals, (control.Get_size(), shard.count), strict=True):
        for added in total:
            control.Allreduce(None, added)
            added /= count
    output = max(control.allgather(output))
    # Some gradients are zero but for rounding (a bias before batch norm): they are measured by the largest.
    named = ({f"{WEIGHT}.{place}": array for place, array in enumerate(total)} for total in totals)
    gradient, _ = deviation({}, *named, bounds=EXACT)
    detail = (
        f"outputs ({output:.2g} of the largest) and mean gradient ({gradient:.2g} of a tensor's length) of "
        f"{int(control.Get_size()) // shard.count} ranks with parts of samples, in float64, against whole samples"
    )
    return Gate.at_most(SPLIT_TOLERANCE, max(output, gradient), name="split", detail=detail)


def _outputs(replica: Replica, weights: Weights, total: Weights) -> Weights:
    """Outputs with these weights; gradients are added to `total`."""
    replica.load(weights)
    outputs = replica.outputs()
    for added, gradient in zip(total, replica.gradients(), strict=True):
        added += gradient
    return outputs
