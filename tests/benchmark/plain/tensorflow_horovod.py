"""Horovod in TensorFlow: the loop of its own synthetic benchmark (tensorflow2_synthetic_benchmark.py)."""

from __future__ import annotations

from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

from plain.bench import Bench, Loop


def scripts(bench: Bench) -> dict[str, Loop]:
    """Over Horovod, which the backend has started."""
    replica = bench.replica()
    (objective,) = replica.objectives

    @tf.function  # type: ignore[untyped-decorator]
    def train(*batch: Any) -> Any:
        with tf.GradientTape() as tape:
            forward = replica.forward(*batch)
            (loss,) = forward.losses
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, objective.parameters)
        objective.optimizer.apply_gradients(zip(gradients, objective.parameters, strict=True))
        for variable, value in forward.updates:
            variable.assign(value)
        return loss

    def step() -> None:
        train(*replica.next_batch())

    return {"plain": Loop(replica=replica, step=step)}
