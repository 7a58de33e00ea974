"""What the TensorFlow networks of all workloads share: set-up, objectives, and the factory of replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from dlscale.models.frameworks import gpu_module
from dlscale.models.frameworks._tensorflow_graph import GraphReplica
from dlscale.models.frameworks._tensorflow_layers import Network
from dlscale.models.frameworks._tensorflow_optimizers import named_optimizer
from dlscale.models.frameworks._tensorflow_replica import (
    TensorFlowObjective,
    TensorFlowProgram,
    TensorFlowReplica,
)
from dlscale.models.frameworks.replica import Build, as_factory, first_weights
from dlscale.models.samples import LocalBatches
from dlscale.models.workload import Execution, Preset


def prepare(
    num_threads: int,
    *,
    device: str = "cpu",
    local_rank: int = 0,
    precision: str = "fp32",
    compiles: bool = True,  # noqa: ARG001 - XLA is part of it
) -> None:
    """Give TensorFlow its threads, and on device gpu the node's GPU number `local_rank`, else none.

    Before it has computed anything. One operation runs at a time.
    """
    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if device == "gpu":
        gpu_module("tensorflow").take(local_rank, tf32=precision == "tf32")
    else:
        tf.config.set_visible_devices([], "GPU")


def objective(
    network: Network, make_optimizer: Callable[[], Any], *, gate: bool, prefix: str = ""
) -> TensorFlowObjective:
    """A loss differentiated for all of `network`; the gate's optimizer is plain SGD of rate 1."""
    trained = [
        (name, variable)
        for name, variable in zip(network.names, network.ordered, strict=True)
        if variable.trainable
    ]
    return TensorFlowObjective(
        names=tuple(prefix + name for name, _ in trained),
        parameters=tuple(variable for _, variable in trained),
        optimizer=tf.compat.v1.train.GradientDescentOptimizer(1.0) if gate else make_optimizer(),
    )


@as_factory
def replica_factory(
    make_program: Callable[..., TensorFlowProgram], preset: Preset, execution: Execution
) -> Build:
    """Builds replicas of a program."""

    def build(make_batches: Callable[[], LocalBatches], *, seed: int | None, gate: bool) -> TensorFlowReplica:
        batches, program = make_batches(), make_program(preset, gate=gate)
        if execution.optimizer and not gate:
            program = replace(
                program,
                objectives=[
                    replace(
                        objective,
                        optimizer=named_optimizer(execution.optimizer, learning_rate=preset.learning_rate),
                    )
                    for objective in program.objectives
                ],
            )
        replica = _kind()(program, batches, execution)
        first_weights(replica, program.first_weights, program.initial, seed=seed)
        return replica

    return build


def _kind() -> type[TensorFlowReplica]:
    """The replica for where it is built: eagerly, or in a graph of version 1."""
    return TensorFlowReplica if tf.executing_eagerly() else GraphReplica
