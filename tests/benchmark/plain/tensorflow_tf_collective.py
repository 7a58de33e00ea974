"""MultiWorkerMirroredStrategy with a loop of one's own: the optimizer averages, or the script does it before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from plain.bench import Bench, Loop

Apply = Callable[[Any, list[Any]], None]


def scripts(bench: Bench) -> dict[str, Loop]:
    """Under the strategy that the backend has formed: a process has one."""
    return {"plain": mirrored(bench, by_optimizer), "plain, all_reduce": mirrored(bench, by_all_reduce)}


def by_optimizer(objective: Any, gradients: list[Any]) -> None:
    """Optimizers under a strategy sum over its replicas, of which each has its part of the loss."""
    objective.optimizer.apply_gradients(zip(gradients, objective.parameters, strict=True))


def by_all_reduce(objective: Any, gradients: list[Any]) -> None:
    """The sum is taken in one call of the replica's context."""
    context = tf.distribute.get_replica_context()
    sums = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
    objective.optimizer.apply_gradients(
        zip(sums, objective.parameters, strict=True), skip_gradients_aggregation=True
    )


def mirrored(bench: Bench, apply: Apply) -> Loop:
    """Every rank is one replica."""
    strategy: Any = bench.backend._strategy  # type: ignore[attr-defined]
    with strategy.scope():
        replica = bench.replica()
    (objective,) = replica.objectives

    def on_replica(*batch: Any) -> Any:
        with tf.GradientTape() as tape:
            forward = replica.forward(*batch)
            loss = forward.losses[0] / strategy.num_replicas_in_sync
        apply(objective, tape.gradient(loss, objective.parameters))
        for variable, value in forward.updates:
            variable.assign(value)
        return loss

    @tf.function  # type: ignore[untyped-decorator]
    def train(*batch: Any) -> Any:
        return strategy.run(on_replica, args=batch)

    def step() -> None:
        train(*replica.next_batch())

    return Loop(replica=replica, step=step)
