"""Checks of trainers whose ranks do not wait for each other. All functions are collective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlscale.benchmarks.gates import RELATIVE_TOLERANCE, identity_gate, largest_of, worst_deviation
from dlscale.benchmarks.record import Gate
from dlscale.collectives.backend import Backend
from dlscale.models.workload import ReplicaFactory, Shard, Weights

STANDARD_ERRORS = 3


def turns_gate(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> list[Gate]:
    """Ranks step one after the other: each changes the weights by minus its own gradient, once, and nothing else does.

    Plain SGD with learning rate 1. A rank's gradient is that at the weights which it held, whatever others have
    done since; the change is measured from the weights that the rank before left behind. With one rank it is the
    gate of synchronous training. The first and the last rank both go first once: after steps that long the gradients of
    others may vanish, and would show nothing.
    """
    gates: list[Gate] = []
    worst = 0.0
    for first in dict.fromkeys((0, shard.count - 1)):
        trainer = backend.distribute(factory, shard=shard, seed=seed + shard.index, gate=True)
        try:
            left = trainer.weights()
            gates = gates or [identity_gate(left, control=control, name="broadcast")]
            reference = factory(shard=shard, seed=seed, gate=True)
            for rank in (*range(first, shard.count), *range(first)):
                if rank == shard.index:
                    reference.load(trainer.weights())
                    own = [gradient.astype(np.float64) for gradient in reference.gradients()]
                    trainer.step()
                    trainer.synchronize()
                    after = trainer.weights()
                    worst = max(worst, worst_deviation(left, after, own, largest=largest_of(own)))
                    left = after
                left = _handed_on(left, control=control, root=rank)
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

    With few steps, masks that are drawn anew in each of them and a small learning rate a sound training's losses may
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


def _handed_on(weights: Weights, *, control: Any, root: int) -> Weights:
    """The weights of `root`."""
    handed = []
    for weight in weights:
        copy = weight.copy()
        control.Bcast(copy, root=root)
        handed.append(copy)
    return handed
