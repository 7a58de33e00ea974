"""Checks of correctness that come before any timing, and after the windows. All functions are collective.

The reference never touches the backend (`reference.py`).
"""

from __future__ import annotations

import hashlib
import math
import time
from typing import Any

from dlscale.benchmarks.rank.audit import Replay, turns
from dlscale.benchmarks.rank.deviation import ROUNDED, Snapshot, bounds_for, deviation, worst_element
from dlscale.benchmarks.rank.process import boot_id
from dlscale.benchmarks.rank.reference import AuditedTraining
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.backend import Backend, Trainer
from dlscale.models.workload import Replica, ReplicaFactory, Shard, Weights

# In units of a tensor's largest change: rounding of the sum over ranks and of a repeated backward pass.
# TF32 keeps 10 bits after the point, bfloat16 7.
RELATIVE_TOLERANCE = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 1e-2}
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
    that long the gradients of others may vanish, and would show nothing. Of the first gradients to come those of the
    first ranks are accepted, which step before the others.
    """
    order, compressed = turns(backend, control.Get_size()), backend.compressor is not None
    tolerance = ROUNDED.share if compressed else RELATIVE_TOLERANCE[precision]
    # What shows all of a rule: a whole round, and that gradients are late rather than skipped.
    num_turns = backend.rounds.for_gate().interval + 1 if backend.rounds is not None else 1 + backend.delay
    gates: list[Gate] = []
    worst = 0.0
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
            step=_in_order(backend, trainer, control=control),
        )
        replay = Replay(training, {"gradient": tolerance}, gate=True)

        def measure(*seen: Snapshot, replay: Replay = replay) -> dict[str, float]:
            reference = replay.reference
            if compressed:
                return {"gradient": deviation(*seen, bounds=ROUNDED, noisy=reference.noisy).share}
            return {"gradient": worst_element(*seen, roundings=reference.roundings)}

        try:
            if backend.capabilities.exchanges and not gates:
                gates.append(broadcast_gate(trainer.weights(), fresh, control=control))
            for turn in (*order[first:], *order[:first]):
                for _ in range(num_turns):
                    replay.take_turn(turn, measure)
        finally:
            trainer.close()
        worst = max(worst, replay.judged_as("gradient").value)
    detail = "change of each tensor by plain SGD against the rule's by the ranks' own gradients, of its largest change"
    return [*gates, Gate.at_most(tolerance, max(control.allgather(worst)), name="gradient", detail=detail)]


def _in_order(backend: Backend, trainer: Trainer, *, control: Any) -> Any:
    """Steps of the ranks whose gradients are to be accepted, and then of the others."""
    num_accepted = control.Get_size() if backend.num_accepted is None else backend.num_accepted
    is_first = control.Get_rank() < num_accepted

    def step() -> None:
        if not is_first:
            control.Barrier()
        trainer.step()
        if is_first and num_accepted < control.Get_size():
            control.Barrier()

    return step


def training_gates(backend: Backend, trainer: Trainer, *, control: Any) -> list[Gate]:
    """After the windows: the loss is finite, and ranks that exchange gradients agree on the weights."""
    gates = [finite_gate(trainer, control=control)]
    if backend.asynchronous:
        gates.append(Gate.unchecked("identity", "not checked: no rank waits for another, and weights differ"))
    elif backend.capabilities.exchanges:
        gates.append(identity_gate(trainer.weights(), control=control))
    return gates


def broadcast_gate(weights: Weights, fresh: Replica, *, control: Any) -> Gate:
    """All ranks hold what rank 0's replica began with, bit by bit; `fresh` is one of its seed as it was made."""
    first = control.allgather(_digest(fresh.weights()))[0]
    differing = [rank for rank, held in enumerate(control.allgather(_digest(weights))) if held != first]
    detail = "ranks whose weights differ from those that rank 0 began with"
    return Gate.none_of(differing, name="broadcast", detail=detail)


def identity_gate(weights: Weights, *, control: Any) -> Gate:
    """All ranks hold the same trainable weights, bit by bit."""
    digests = control.allgather(_digest(weights))
    differing = [rank for rank, other in enumerate(digests) if other != digests[0]]
    return Gate.none_of(differing, name="identity", detail="ranks whose weights differ from rank 0's")


def finite_gate(trainer: Trainer, *, control: Any) -> Gate:
    """The loss of the last step is finite on every rank."""
    bad = [rank for rank, loss in enumerate(control.allgather(trainer.loss())) if not math.isfinite(loss)]
    return Gate.none_of(bad, name="finite_loss", detail="ranks whose loss is not finite")


def _digest(weights: Weights) -> str:
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.tobytes())
    return digest.hexdigest()
