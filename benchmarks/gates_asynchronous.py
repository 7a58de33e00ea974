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
    """The mean over ranks of the `last` losses is below that of the `first` ones."""
    means = [float(np.mean(control.allgather(float(np.mean(losses))))) for losses in (first, last)]
    ratio = means[1] / means[0] if means[0] else math.inf
    return Gate(
        name="falling_loss",
        passed=bool(ratio < 1.0),
        value=ratio if math.isfinite(ratio) else None,
        tolerance=1.0,
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
