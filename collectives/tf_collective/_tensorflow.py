"""The TensorFlow trainer under a strategy of TensorFlow's own that exchanges the gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import ReplicaTrainer, Setting
from dlscale.collectives.training._tensorflow import assign, on_gpu


def multi_worker(addresses: Sequence[str], *, index: int, implementation: str) -> Any:
    """MultiWorkerMirroredStrategy over workers at `addresses`, host:port each; collective.

    Raises UsageError where TensorFlow has computed already.
    """
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(addresses)}),
        task_type="worker",
        task_id=index,
        rpc_layer="grpc",
    )
    kind = tf.distribute.experimental.CommunicationImplementation[implementation.upper()]
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(
            cluster_resolver=resolver,
            communication_options=tf.distribute.experimental.CommunicationOptions(implementation=kind),
        )
    except RuntimeError as error:
        raise UsageError(
            f"TensorFlow cannot form its cluster in this process ({str(error).splitlines()[0]}); its collectives are "
            "connected once, before anything is computed"
        ) from None


def over(
    make_replica: Callable[[], Any], strategy: Any, *, bytes_per_pack: int, implementation: str
) -> StrategyTrainer:
    """The replica made in the strategy's scope, with the weights of rank 0; collective."""
    with strategy.scope():
        replica = make_replica()
        replica.make_slots()  # else the first step is traced twice
    trainer = StrategyTrainer(replica, strategy, bytes_per_pack=bytes_per_pack, implementation=implementation)
    trainer.broadcast()
    return trainer


class StrategyTrainer(ReplicaTrainer):
    """A step is one `tf.function` around `Strategy.run` (`Trainer`).

    All objectives' gradients are averaged before any is applied. `implementation` names what carries them.
    """

    def __init__(self, replica: Any, strategy: Any, *, bytes_per_pack: int, implementation: str) -> None:
        super().__init__(replica)
        self._strategy, self._bytes_per_pack = strategy, bytes_per_pack
        self._implementation = implementation
        self._waits = on_gpu(replica)
        self._options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=bytes_per_pack)
        self._step = replica.traced(self._one_step)

    def broadcast(self) -> None:
        """Every rank has the weights of rank 0: the sum of them and the other ranks' zeros."""
        is_first = self._strategy.cluster_resolver.task_id == 0
        weights = self._replica.weights()
        mine = [tf.constant(weight if is_first else 0 * weight) for weight in weights]

        def summed(*tensors: Any) -> Any:
            context = tf.distribute.get_replica_context()
            here = [tf.identity(tensor) for tensor in tensors]  # what comes from outside has no device
            return context.all_reduce(tf.distribute.ReduceOp.SUM, here, self._options)

        weights_of_first = tf.function(lambda *tensors: self._strategy.run(summed, args=tensors))(*mine)
        self._replica.load([tensor.numpy() for tensor in weights_of_first])

    def step(self) -> None:
        self._losses = self._step(*self._replica.next_batch())

    def synchronize(self) -> None:
        """On a CPU a step is done when it returns; a GPU has to be waited for."""
        if self._waits:
            tf.test.experimental.sync_devices()

    def settings(self) -> dict[str, Setting]:
        """The strategy's options; each gradient's collective begins as soon as the gradient is ready."""
        return {
            "overlap": True,
            "bytes_per_pack": self._bytes_per_pack,
            "implementation": self._implementation,
        }

    def close(self) -> None:
        """Nothing to release."""

    def _one_step(self, *batch: Any) -> Any:
        return self._strategy.run(self._on_replica, args=batch)

    def _on_replica(self, *batch: Any) -> list[Any]:
        losses, gradients, updates = self._replica.differentiate(*batch)
        context = tf.distribute.get_replica_context()
        together = [gradient for group in gradients for gradient in group]
        means = iter(context.all_reduce(tf.distribute.ReduceOp.MEAN, together, self._options))
        for objective in self._replica.objectives:
            pairs = [(next(means), variable) for variable in objective.parameters]
            # They are averaged already, all objectives' in one call, which the optimizer would do one by one.
            objective.optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
        assign(updates)
        return list(losses)
