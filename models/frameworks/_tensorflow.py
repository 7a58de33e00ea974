"""What the TensorFlow networks of all workloads share: set-up, objectives, and the factory of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.frameworks import _tensorflow_optimizers, gpu_module
from dlscale.models.frameworks._tensorflow_layers import Network
from dlscale.models.frameworks._tensorflow_replica import (
    Batch,
    TensorFlowProgram,
    TensorFlowReplica,
    Update,
)
from dlscale.models.frameworks.replica import factory_of
from dlscale.models.parallel._tensorflow import split_rows
from dlscale.models.samples import LocalBatches
from dlscale.models.workload import Execution, Objective, ReplicaFactory, Weights


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
) -> Objective:
    """A loss differentiated for all of `network`; the gate's optimizer is plain SGD of rate 1."""
    pairs = zip(network.names, network.ordered, strict=True)
    trained = {name: variable for name, variable in pairs if variable.trainable}
    return Objective(
        names=tuple(prefix + name for name in trained),
        parameters=tuple(trained.values()),
        optimizer=_tensorflow_optimizers.Sgd(1.0) if gate else make_optimizer(),
    )


def replica_factory(
    make_program: Callable[..., TensorFlowProgram], data: Any, **given: Any
) -> ReplicaFactory:
    """Builds replicas of a program: eagerly, or in a graph of version 1."""

    def made(*arguments: Any) -> TensorFlowReplica:
        return (TensorFlowReplica if tf.executing_eagerly() else GraphReplica)(*arguments)

    return factory_of(made, _tensorflow_optimizers.named_optimizer, split_rows, make_program, data, **given)


class GraphReplica(TensorFlowReplica):
    """`workload.Replica` in a graph of version 1, which TensorFlow's own parameter servers need.

    Its weights live where a session keeps them. Until one runs it, they are those that its variables will be given.
    """

    def __init__(self, program: TensorFlowProgram, batches: LocalBatches, execution: Execution) -> None:
        super().__init__(program, batches, execution)
        self._session: Any = None
        self._given = [np.zeros(variable.shape, np.float32) for variable in self._parameters()]

    def _as_batch(self, arrays: Sequence[NDArray[Any]]) -> Batch:
        """The arrays, to be fed."""
        return tuple(arrays)

    def differentiate(
        self, *batch: Any, wrapped: Callable[[Any], Any] = lambda tape: tape
    ) -> tuple[list[Any], list[list[Any]], list[Update]]:
        """Like a `TensorFlowReplica`, by the graph itself: a tape does not see that a variable was read before it."""
        del wrapped
        forward = self.forward(*batch)
        gradients = [
            tf.gradients(loss, list(objective.parameters))
            for loss, objective in zip(forward.losses, self.objectives, strict=True)
        ]
        return list(forward.losses), gradients, list(forward.updates)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Raises UsageError: the rate is a constant of the graph."""
        raise UsageError(
            f"learning rate {learning_rate:g}: a graph of TensorFlow 1 has one rate for good; leave out "
            "warm_up_samples and decay_samples over grpc_ps"
        )

    def placeholders(self) -> list[Any]:
        """What local batches are fed to, made like the first one."""
        batch = self.next_batch()
        self._batches.begin_at(0)
        return [tf.compat.v1.placeholder(array.dtype, array.shape) for array in batch]

    def run_in(self, session: Any, *, first: bool) -> None:
        """From now on the weights are those of `session`, which with `first` gets those that it was given."""
        self._session = session
        if first:
            self.load(self._given)
        self._given = []

    def weights(self) -> Weights:
        return [weight.copy() for weight in self._given] if self._session is None else super().weights()

    def _kept_by_optimizers(self) -> dict[str, Any]:
        with self._session.graph.as_default():  # where they look for it
            return super()._kept_by_optimizers()

    def _values(self, variables: Iterable[Any]) -> list[NDArray[Any]]:
        """Those of the session that holds them."""
        values: list[NDArray[Any]] = self._session.run(list(variables))
        return values

    def load(self, weights: Weights) -> None:
        if self._session is None:
            self._given = [weight.copy() for weight in weights]
            return
        for variable, weight in zip(self._parameters(), weights, strict=True):
            variable.load(weight, self._session)
