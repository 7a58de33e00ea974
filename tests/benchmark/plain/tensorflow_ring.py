"""The ring in a TensorFlow script: a second interface of ours, beside the trainer's own operations."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from dlscale.collectives import ring
from plain.bench import Bench, Loop


def scripts(bench: Bench) -> dict[str, Loop]:
    """Over a ring of its own."""
    replica = bench.replica()
    (objective,) = replica.objectives
    ranks = ring.join(bench.world)

    @tf.function  # type: ignore[untyped-decorator]
    def train(*batch: Any) -> Any:
        with tf.GradientTape() as tape:
            forward = replica.forward(*batch)
            (loss,) = forward.losses
        gradients = ring.average_gradients(tape.gradient(loss, objective.parameters), ranks)
        objective.optimizer.apply_gradients(zip(gradients, objective.parameters, strict=True))
        for variable, value in forward.updates:
            variable.assign(value)
        return loss

    def step() -> None:
        train(*replica.next_batch())

    return {"average_gradients": Loop(replica=replica, step=step)}
