"""Checks of correctness that come before any timing. All functions are collective.

The reference never touches the backend: local gradients are computed by a second replica and averaged over
the control plane in float64. Which training has which gates is in `checks.py`.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from dlscale.benchmarks.rank.deviation import Judged, bounds_for, changed, deviation, noisy_weights
from dlscale.benchmarks.rank.replaying import judged_gate, make_slots, mean_over_ranks
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.backend import Backend, Trainer
from dlscale.models.workload import Replica, ReplicaFactory, Shard, Weights

# In units of a tensor's largest gradient: rounding of the sum over ranks and of a repeated backward pass.
# TF32 keeps 10 bits after the point, bfloat16 7.
RELATIVE_TOLERANCE = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 1e-2}

# Of gradients that are rounded on their way, in units of any rank's largest: bfloat16 rounds what is added and the
# sum by 2^-8 at most, and in a later step what was kept of an earlier one's roundings comes on top.

FLOOR = 1e-3

NUM_SHARDED_STEPS = 3  # a part that is updated from an old one of another rank shows in the second


def gradient_gate(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> list[Gate]:
    """One step of plain SGD with learning rate 1 changes the weights by minus the mean of the local gradients.

    Every rank starts from other weights, so that the first gate, `broadcast_gate`, sees whose were broadcast. Over
    `none` the change must be the rank's own gradient, and weights differ.

    Where gradients are applied late, by d steps, the gate is shifted: the first d steps change nothing, and each of
    the next d + 1 changes the weights by the gradients at the first ones. (The last of these tells a late gradient
    from one that was only skipped at the start: its own step saw other weights.)

    Where only the first gradients to come are accepted, the first ranks step first: the mean is theirs, and what the
    others bring afterwards changes nothing.

    Where gradients are rounded on their way the ranks' own largest ones are the measure: their mean may be smaller.
    Asynchronous trainers have a gate of their own (`turns_gate`).
    """
    exchanges, delay = backend.capabilities.exchanges, backend.delay
    rank, num_ranks = control.Get_rank(), control.Get_size()
    num_accepted = num_ranks if backend.num_accepted is None else backend.num_accepted
    accepted = rank < num_accepted
    trainer = backend.distribute(factory, shard=shard, seed=seed + rank, gate=True)
    try:
        before = trainer.weights()
        reference = factory(shard=shard, seed=seed, gate=True)
        gates = [broadcast_gate(before, reference, control=control)] if exchanges else []
        reference.load(before)
        expected = [gradient.astype(np.float64, order="C") for gradient in reference.gradients()]
        if exchanges:
            for gradient in expected:
                gradient *= accepted
                control.Allreduce(None, gradient)
                gradient /= num_accepted
        largest = largest_of(expected)
        if delay:
            after = _after_steps(trainer, delay)
            gates.append(_delay_gate(before, after, control=control, delay=delay))
        worst = 0.0
        for _ in range(1 + delay):
            if not accepted:
                control.Barrier()
            trainer.step()
            if accepted and num_accepted < num_ranks:
                control.Barrier()
            trainer.synchronize()
            after = trainer.weights()
            worst = max(worst, worst_deviation(before, after, expected, largest=largest))
            before = after
    finally:
        trainer.close()
    worst = control.allreduce(worst, op=max)
    whose = "the ranks'" if num_accepted == num_ranks else f"the first {num_accepted} ranks'"
    what = f"the mean of {whose} own gradients" if exchanges else "the rank's own gradient"
    late = f" {delay} step earlier" if delay else ""
    detail = f"change of the weights against {what}{late}, of each tensor's largest gradient"
    return [*gates, Gate.at_most(RELATIVE_TOLERANCE[precision], worst, name="gradient", detail=detail)]


def _after_steps(trainer: Trainer, num_steps: int) -> Weights:
    for _ in range(num_steps):
        trainer.step()
    trainer.synchronize()
    return trainer.weights()


def _delay_gate(before: Weights, after: Weights, *, control: Any, delay: int) -> Gate:
    """Steps that have no gradients to apply yet leave the weights as they are, bit by bit, on every rank."""
    num_changed = sum(not np.array_equal(old, new) for old, new in zip(before, after, strict=True))
    num_changed = control.allreduce(num_changed, op=max)
    detail = f"weights that changed in the first {delay} step, where gradients are applied {delay} step late"
    return Gate.at_most(0.0, float(num_changed), name="delay", detail=detail)


def broadcast_gate(weights: Weights, fresh: Replica, *, control: Any) -> Gate:
    """After `distribute` all ranks hold what rank 0's replica began with, bit by bit.

    `fresh` is a replica of rank 0's seed as it was made, on which no backend has laid hands.
    """
    first = control.allgather(_digest(fresh.weights()))[0]
    differing = [rank for rank, held in enumerate(control.allgather(_digest(weights))) if held != first]
    detail = "ranks whose weights differ from those that rank 0 began with"
    return Gate.none_of(differing, name="broadcast", detail=detail)


def identity_gate(weights: Weights, *, control: Any) -> Gate:
    """All ranks hold the same trainable weights, bit by bit."""
    digests = control.allgather(_digest(weights))
    differing = [rank for rank, other in enumerate(digests) if other != digests[0]]
    return Gate.none_of(differing, name="identity", detail="ranks whose weights differ from rank 0's")


def _digest(weights: Weights) -> str:
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.tobytes())
    return digest.hexdigest()


def sharding_gate(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> Gate:
    """Weights and what the network's own optimizer keeps, after a few steps; collective.

    Beside them a replica that has everything takes the same steps, with gradients that are averaged over the control
    plane. A part that is not updated, or twice, or is gathered as it was before a step, deviates.
    """
    own_seed = seed + shard.index
    trainer = backend.distribute(factory, shard=shard, seed=own_seed)
    try:
        state = trainer.state()
        reference = factory(shard=shard, seed=own_seed, drawn=False)
        make_slots(reference)
        reference.restore(state)
        before = {name: value.copy() for name, value in changed(trainer.held()).items()}
        bounds = bounds_for(precision=precision, device=reference.device)
        noisy: set[str] = set()
        for _ in range(NUM_SHARDED_STEPS):
            trainer.step()
            gradients = mean_over_ranks(reference.gradients(), control=control, order="K")
            noisy |= noisy_weights(gradients, bounds=bounds)
            reference.apply(gradients)
        trainer.synchronize()
        judged = Judged(bounds.window)
        changes = before, changed(trainer.held()), changed(reference.held())
        judged.add(deviation(*changes, bounds=bounds, noisy=noisy).share)
    finally:
        trainer.close()
    detail = (
        f"change of each tensor in {NUM_SHARDED_STEPS} steps, gathered, against a training without shards"
    )
    return judged_gate("sharding", judged, detail, control=control)


def finite_gate(trainer: Trainer, *, control: Any) -> Gate:
    """The loss of the last step is finite on every rank."""
    losses = control.allgather(trainer.loss())
    bad = [rank for rank, loss in enumerate(losses) if not math.isfinite(loss)]
    return Gate.none_of(bad, name="finite_loss", detail="ranks whose loss is not finite")


def largest_of(gradients: Weights) -> list[float]:
    """The largest absolute value of each tensor."""
    return [float(np.max(np.abs(gradient), initial=0.0)) for gradient in gradients]


def worst_deviation(
    before: Weights, after: Weights, expected: Weights, *, largest: list[float], roundings: int = 1
) -> float:
    """Largest |(before - after) - expected| over the tensor's of `largest`, over all tensors.

    Some gradients are zero but for rounding (a bias before batch norm, which takes it out again): a tensor whose
    largest is below FLOOR of the largest of all is measured on that scale.
    Subtracting the gradient from the weight rounds to the weight's last place, which no backend can avoid:
    one unit in the last place of the tensor's largest weight is not counted, or so many as there are `roundings`.
    """
    worst = 0.0
    floor = FLOOR * max([0.0, *largest])
    for old, new, gradient, scale in zip(before, after, expected, largest, strict=True):
        error = old.astype(np.float64)
        error -= new
        error -= gradient
        rounding = roundings * float(np.spacing(np.max(np.abs(old), initial=0)))
        deviation = float(np.max(np.abs(error), initial=0.0)) - rounding
        if not (math.isfinite(deviation) and math.isfinite(scale)):
            return math.inf
        if deviation > 0:
            unit = max(scale, floor)
            worst = max(worst, deviation / unit if unit else math.inf)
    return worst
