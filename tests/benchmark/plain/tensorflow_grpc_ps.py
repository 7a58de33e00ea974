"""TensorFlow's parameter servers: between-graph replication, SyncReplicasOptimizer, MonitoredTrainingSession."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from dlscale.collectives.grpc_ps._tensorflow_worker import local_statistics
from plain.bench import Bench, Loop


def scripts(bench: Bench) -> dict[str, Loop]:
    """On the cluster that the backend has formed: a process has one server."""
    return {"plain": served(bench, "plain"), "plain, weights read once": served(bench, "once", once=True)}


def served(bench: Bench, container: str, *, once: bool = False) -> Loop:
    """With `once`, weights are fetched once per step and batch norm's statistics stay on the worker, as ours.

    `container` keeps its variables apart from those of the other loops on the servers.
    """
    cluster: Any = bench.backend._cluster  # type: ignore[attr-defined]
    index, num_workers = bench.shard.index, bench.shard.count
    chief = index == 0
    worker = f"/job:worker/task:{index}/device:CPU:0"
    with tf.Graph().as_default() as graph, graph.container(container):
        with tf.compat.v1.device(
            tf.compat.v1.train.replica_device_setter(cluster=cluster.spec, worker_device=worker)
        ):
            creator: AbstractContextManager[Any] = nullcontext()
            if once:
                creator = tf.variable_creator_scope(local_statistics(worker))
            with creator:
                replica = bench.replica()
            (objective,) = replica.objectives
            fed, _ = replica.placeholders()
            global_step = tf.compat.v1.train.get_or_create_global_step()
            optimizer = tf.compat.v1.train.SyncReplicasOptimizer(
                objective.optimizer, replicas_to_aggregate=num_workers, total_num_replicas=num_workers
            )
            forward = replica.forward(*fed)
            (loss,) = forward.losses
            gradients = tf.gradients(loss, list(objective.parameters))
            train = optimizer.apply_gradients(
                list(zip(gradients, objective.parameters, strict=True)), global_step
            )
            train = tf.group(train, *(variable.assign(value) for variable, value in forward.updates))
        # Without tokens to begin with, a step ends when its own update is made, as ours does.
        hook = optimizer.make_session_run_hook(chief, num_tokens=0)
        if not chief:
            bench.control.barrier()  # a worker that comes before the chief looks again after 30 s
        session = tf.compat.v1.train.MonitoredTrainingSession(
            cluster.server.target,
            chief,
            hooks=[hook],
            config=cluster.config,
            stop_grace_period_secs=1,
            log_step_count_steps=None,
        )
        replica.run_in(session, first=chief)
    if chief:
        bench.control.barrier()
    bench.control.barrier()

    def step() -> None:
        session.run([loss, train], dict(zip(fed, replica.next_batch(), strict=True)))

    def close() -> None:
        bench.control.barrier()
        session.close()

    return Loop(replica=replica, step=step, close=close)
