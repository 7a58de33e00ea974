"""Checks of correctness that come before any timing. All functions are collective.

The reference never touches the backend: local gradients are computed by a second replica and averaged over
the control plane in float64. Trainers whose ranks do not wait for each other have gates of their own: each rank has
its turn alone, and the loss falls.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlscale.benchmarks.rank.turns import change_in_turn, num_first_steps, turns
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.backend import Backend, Trainer
from dlscale.models.workload import ReplicaFactory, Shard, Weights

# In units of a tensor's largest gradient: rounding of the sum over ranks and of a repeated backward pass.
RELATIVE_TOLERANCE = {"fp32": 1e-4, "bf16": 1e-2}

# Of gradients that are rounded on their way, in units of any rank's largest: bfloat16 rounds what is added and the
# sum by 2^-8 at most, and in a later step what was kept of an earlier one's roundings comes on top.
WIRE_TOLERANCE = {"float32": 0.0, "bfloat16": 2e-2}

FLOOR = 1e-3


def update_gates(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> list[Gate]:
    """Before any timing: one update of the weights is what the gradients ask for.

    All ranks step together, or in turn where they do not wait for each other.
    """
    gate = turns_gate if backend.asynchronous else gradient_gate
    return gate(backend, factory, control=control, shard=shard, seed=seed, precision=precision)


def training_gates(
    backend: Backend, trainer: Trainer, *, control: Any, first_losses: Sequence[float] | None
) -> list[Gate]:
    """After the windows: the loss is finite, and ranks that exchange gradients agree on the weights.

    Asynchronous ranks need not agree; their loss must have fallen from `first_losses`, which is None where it need not.
    """
    results = [finite_gate(trainer, control=control)]
    if backend.asynchronous:
        if first_losses is not None:
            last_losses = _losses_of_further_steps(trainer, len(first_losses))
            results.append(falling_gate(first_losses, last_losses, control=control))
    elif backend.capabilities.exchanges:
        results.append(identity_gate(trainer.weights(), control=control, name="identity"))
    return results


def gradient_gate(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> list[Gate]:
    """One step of plain SGD with learning rate 1 changes the weights by minus the mean of the local gradients.

    Every rank starts from other weights, so that the first gate, equal weights after `distribute`, shows that
    rank 0's were really broadcast. Over `none` the change must be the rank's own gradient, and weights differ.

    Where gradients are applied late, by d steps, the gate is shifted: the first d steps change nothing, and each of
    the next d + 1 changes the weights by the gradients at the first ones. (The last of these tells a late gradient
    from one that was only skipped at the start: its own step saw other weights.)

    Where only the first gradients to come are accepted, the first ranks step first: the mean is theirs, and what the
    others bring afterwards changes nothing.

    Where gradients are rounded on their way the ranks' own largest ones are the measure: their mean may be smaller.
    Asynchronous trainers have a gate of their own (`turns_gate`).
    """
    exchanges, delay = backend.capabilities.exchanges, backend.delay
    num_accepted = shard.count if backend.num_accepted is None else backend.num_accepted
    accepted = shard.index < num_accepted
    trainer = backend.distribute(factory, shard=shard, seed=seed + shard.index, gate=True)
    try:
        before = trainer.weights()
        gates = [identity_gate(before, control=control, name="broadcast")] if exchanges else []
        reference = factory(shard=shard, seed=seed, gate=True)
        reference.load(before)
        expected = [gradient.astype(np.float64) for gradient in reference.gradients()]
        largest_own = largest_of(expected)
        if exchanges:
            for gradient in expected:
                gradient *= accepted
                control.Allreduce(_in_place(), gradient)
                gradient /= num_accepted
        largest = largest_of(expected)
        if backend.wire != "float32":
            largest = control.allreduce(largest_own, op=_elementwise_maximum)
        if delay:
            after = _after_steps(trainer, delay)
            gates.append(_delay_gate(before, after, control=control, delay=delay))
        worst = 0.0
        for _ in range(1 + delay):
            if not accepted:
                control.Barrier()
            trainer.step()
            if accepted and num_accepted < shard.count:
                control.Barrier()
            trainer.synchronize()
            after = trainer.weights()
            worst = max(worst, worst_deviation(before, after, expected, largest=largest))
            before = after
    finally:
        trainer.close()
    tolerance = max(RELATIVE_TOLERANCE[precision], WIRE_TOLERANCE[backend.wire])
    worst = control.allreduce(worst, op=_maximum())
    whose = "the ranks'" if num_accepted == shard.count else f"the first {num_accepted} ranks'"
    what = f"the mean of {whose} own gradients" if exchanges else "the rank's own gradient"
    late = f" {delay} step earlier" if delay else ""
    gate = Gate(
        name="gradient",
        passed=bool(worst <= tolerance),
        value=worst if math.isfinite(worst) else None,
        tolerance=tolerance,
        detail=f"change of the weights against {what}{late}, of each tensor's largest gradient"
        + ("" if backend.wire == "float32" else f" on any rank, travelling as {backend.wire}"),
    )
    return [*gates, gate]


def _after_steps(trainer: Trainer, num_steps: int) -> Weights:
    for _ in range(num_steps):
        trainer.step()
    trainer.synchronize()
    return trainer.weights()


def _delay_gate(before: Weights, after: Weights, *, control: Any, delay: int) -> Gate:
    """Steps that have no gradients to apply yet leave the weights as they are, bit by bit, on every rank."""
    num_changed = sum(not np.array_equal(old, new) for old, new in zip(before, after, strict=True))
    num_changed = control.allreduce(num_changed, op=_maximum())
    return Gate(
        name="delay",
        passed=num_changed == 0,
        value=float(num_changed),
        tolerance=0.0,
        detail=f"weights that changed in the first {delay} step, where gradients are applied {delay} step late",
    )


def identity_gate(weights: Weights, *, control: Any, name: str) -> Gate:
    """All ranks hold the same trainable weights, bit by bit."""
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.tobytes())
    digests = control.allgather(digest.hexdigest())
    differing = [rank for rank, other in enumerate(digests) if other != digests[0]]
    return Gate(
        name=name,
        passed=not differing,
        value=float(len(differing)),
        tolerance=0.0,
        detail=f"ranks whose weights differ from rank 0's: {differing or 'none'}",
    )


def finite_gate(trainer: Trainer, *, control: Any) -> Gate:
    """The loss of the last step is finite on every rank."""
    losses = control.allgather(trainer.loss())
    bad = [rank for rank, loss in enumerate(losses) if not math.isfinite(loss)]
    return Gate(
        name="finite_loss",
        passed=not bad,
        value=float(len(bad)),
        tolerance=0.0,
        detail=f"ranks whose loss is not finite: {bad or 'none'}",
    )


def numerics_gate(before: Mapping[str, str], after: Mapping[str, str], *, control: Any) -> Gate:
    """What a process computes with, in precision and threads, is what it was: a replay would change with it."""
    own = [f"{name}: {old} -> {after.get(name)}" for name, old in before.items() if after.get(name) != old]
    changed = sorted({change for changes in control.allgather(own) for change in changes})
    return Gate(
        name="numerics",
        passed=not changed,
        value=float(len(changed)),
        tolerance=0.0,
        detail=f"settings of the framework that changed during the case: {', '.join(changed) or 'none'}",
    )


def largest_of(gradients: Weights) -> list[float]:
    """The largest absolute value of each tensor."""
    return [float(np.max(np.abs(gradient), initial=0.0)) for gradient in gradients]


def _elementwise_maximum(first: list[float], second: list[float]) -> list[float]:
    return [float(np.maximum(a, b)) for a, b in zip(first, second, strict=True)]  # NaN stays NaN


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


def _in_place() -> Any:
    from mpi4py import MPI

    return MPI.IN_PLACE


def _maximum() -> Any:
    from mpi4py import MPI

    return MPI.MAX


STANDARD_ERRORS = 3


def turns_gate(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> list[Gate]:
    """Ranks step one after the other: each changes the weights by minus its own gradient, once, and nothing else does.

    Plain SGD with learning rate 1. A rank's gradient is that at the weights which it held, whatever others have
    done since; the change is measured from the weights that the rank before left behind. With one rank it is the
    gate of synchronous training. The first and the last rank both go first once: after steps that long the gradients of
    others may vanish, and would show nothing. A turn lasts until the rank has pushed. Ranks of a group have their turn
    together, and the change is by the mean of their gradients.
    """
    gates: list[Gate] = []
    worst = 0.0
    algorithm = backend.served.for_gate() if backend.served else None
    order = turns(algorithm, shard.count)
    for first in dict.fromkeys((0, len(order) - 1)):
        trainer = backend.distribute(factory, shard=shard, seed=seed + shard.index, gate=True)
        try:
            left = first_weights = trainer.weights()
            gates = gates or [identity_gate(left, control=control, name="broadcast")]
            reference = factory(shard=shard, seed=seed, gate=True)
            for turn in (*order[first:], *order[:first]):
                is_mine = shard.index in turn
                own = [np.zeros(weight.shape) for weight in left]
                if is_mine:
                    own = change_in_turn(
                        algorithm, reference, trainer.weights(), own=first_weights, num_ranks=shard.count
                    )
                if len(turn) > 1:
                    for change in own:
                        control.Allreduce(_in_place(), change)
                        change /= len(turn)
                if is_mine:
                    for _ in range(num_first_steps(algorithm)):
                        trainer.step()
                    trainer.synchronize()
                if len(turn) > 1:
                    control.Barrier()  # one of them pushes for all
                if is_mine:
                    after = trainer.weights()
                    worst = max(worst, worst_deviation(left, after, own, largest=largest_of(own)))
                    left = after
                left = _broadcast(left, control=control, root=turn[0])
        finally:
            trainer.close()
    worst = max(control.allgather(worst))
    tolerance = RELATIVE_TOLERANCE[precision]
    gate = Gate(
        name="gradient",
        passed=bool(worst <= tolerance),
        value=worst if math.isfinite(worst) else None,
        tolerance=tolerance,
        detail="change of the weights by ranks that step in turn against each one's own gradient, of each tensor's "
        "largest gradient",
    )
    return [*gates, gate]


def falling_gate(first: Sequence[float], last: Sequence[float], *, control: Any) -> Gate:
    """The mean of the `last` losses of all ranks is not above that of the `first` ones beyond chance.

    With few steps, masks that are drawn anew in each of them and a small learning rate a valid training's losses may
    rise a little, and a broken one's rise a lot: three standard errors of the difference are allowed.
    """
    groups = [np.concatenate(control.allgather(np.asarray(losses, float))) for losses in (first, last)]
    before, after = (float(np.mean(group)) for group in groups)
    ratio = after / before if before else math.inf
    tolerance = 1.0
    if math.isfinite(ratio):
        variance = sum(float(np.var(group, ddof=1)) / len(group) for group in groups if len(group) > 1)
        tolerance += STANDARD_ERRORS * math.sqrt(variance) / abs(before)
    return Gate(
        name="falling_loss",
        passed=bool(ratio <= tolerance),
        value=ratio if math.isfinite(ratio) else None,
        tolerance=tolerance,
        detail=f"the loss of the last {len(last)} steps over that of the first {len(first)}, mean over ranks",
    )


def _losses_of_further_steps(trainer: Trainer, num_steps: int) -> list[float]:
    losses = []
    for _ in range(num_steps):
        trainer.step()
        losses.append(trainer.loss())
    trainer.synchronize()
    return losses


def _broadcast(weights: Weights, *, control: Any, root: int) -> Weights:
    """The weights of `root`."""
    copies = [weight.copy() for weight in weights]
    for copy in copies:
        control.Bcast(copy, root=root)
    return copies
