"""The TensorFlow trainer: a step is one `tf.function`, with the exchange of gradients inside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from dlscale.collectives.backend import ReplicaTrainer, Setting, StepStamps

# TensorFlow takes every operation for a long one, and puts it behind the others, until it has measured that it is not:
# of an estimate of 1e8 cycles a tenth goes with each run, and below 8000 it is short: 90 runs, and 102 were seen.
SETTLING_STEPS = 120


class NoExchange:
    """Every rank keeps its own gradients; also the base of what averages gradients in the graph of a step."""

    @property
    def failure(self) -> BaseException | None:
        """The error of the exchange, where it is clearer than TensorFlow's own."""
        return None

    def average(self, gradients: Sequence[Any]) -> list[Any]:
        """The means over ranks, in order, of all objectives' gradients."""
        return list(gradients)

    def settings(self) -> Mapping[str, Setting]:
        """Its own decisions, for the record."""
        return {}

    def close(self) -> None:
        """Release what it holds."""


class TensorFlowTrainer(ReplicaTrainer):
    """A replica's objectives, all differentiated and exchanged, and only then all updated (`Trainer`).

    XLA, where it was asked for, compiles the networks and their gradients; exchange and update stay outside.
    `tape` wraps the gradient tape, for libraries that exchange in it.
    """

    def __init__(
        self, replica: Any, exchange: NoExchange, *, tape: Callable[[Any], Any] = lambda tape: tape
    ) -> None:
        super().__init__(replica)
        replica.make_slots()  # else the first step is traced twice
        self._exchange = exchange
        self._differentiate: Callable[..., Any] = partial(replica.differentiate, wrapped=tape)
        if replica.compiled:
            self._differentiate = compiled_differentiation(replica)
        self._step = replica.traced(self._one_step)
        self._waits = on_gpu(replica)

    def step(self) -> None:
        self._losses = self._run(self._step, *self._replica.next_batch())

    def synchronize(self) -> None:
        """On a CPU a step is done when it returns; a GPU has to be waited for."""
        if self._waits:
            tf.test.experimental.sync_devices()

    def settings(self) -> dict[str, Setting]:
        return dict(self._exchange.settings())

    def close(self) -> None:
        self._exchange.close()

    def _one_step(self, *batch: Any) -> list[Any]:
        losses, groups, updates = self._differentiate(*batch)
        self._update(self._exchange.average(flat(groups)))
        assign(updates)
        return list(losses)

    def _update(self, averaged: Sequence[Any]) -> None:
        means = iter(averaged)
        for objective in self._replica.objectives:
            objective.optimizer.apply_gradients(
                [(next(means), variable) for variable in objective.parameters]
            )

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a `tf.function`. An error of the exchange is raised as itself, where it is known."""
        try:
            return function(*arguments)
        except tf.errors.OpError:
            if self._exchange.failure:
                raise self._exchange.failure from None
            raise


def flat(groups: Sequence[Sequence[Any]]) -> list[Any]:
    """All objectives' gradients, one after the other."""
    return [gradient for group in groups for gradient in group]


def on_gpu(replica: Any) -> bool:
    """Whether a replica's weights are on a GPU, which is still at work when a step returns."""
    parameters = (parameter for objective in replica.objectives for parameter in objective.parameters)
    return any("GPU" in parameter.device for parameter in parameters)


def assign(updates: Sequence[tuple[Any, Any]]) -> None:
    """Give variables their next values: the running statistics of batch norm."""
    for variable, value in updates:
        variable.assign(value)


def compiled_differentiation(replica: Any) -> Callable[..., Any]:
    """Its `differentiate` by XLA. Only tensors come out of it: variables to be updated are noted while it is traced."""
    variables: list[Any] = []

    def tensors(*batch: Any) -> Any:
        losses, gradients, updates = replica.differentiate(*batch)
        variables[:] = [variable for variable, _ in updates]
        return losses, gradients, [value for _, value in updates]

    compiled = replica.traced(tensors, jit_compile=True)

    def call(*batch: Any) -> Any:
        losses, gradients, values = compiled(*batch)
        return losses, gradients, list(zip(variables, values, strict=True))

    return call


class TensorFlowStampedTrainer(TensorFlowTrainer):
    """A replica alone, whose steps can be stamped (`StampedTrainer`).

    Stamps are operations of the step's graph: each waits for what it stamps. A `tf.function` would run operations with
    state, as these are, one after the other in the order of the graph, and a gradient would count as complete when
    those before it are. So the stamped step is a graph of version 1, where only dependencies order operations, and the
    update waits for all gradients, as it does behind an exchange. Where XLA compiles the network, all gradients come at
    once.
    """

    settling_steps = SETTLING_STEPS

    def __init__(self, replica: Any) -> None:
        super().__init__(replica, NoExchange(), tape=self._note_forward)
        self._stamped: Any = None  # made like the first batch
        self._num_forward = 0  # operations of the graph before those of the gradients

    def stamped_step(self) -> StepStamps:
        """Train on one local batch, with stamps.

        They are of the wall clock, as the graph has no other; it is read where the step begins.
        """
        wall, begin = time.time(), time.perf_counter()
        batch = self._replica.next_batch()
        fetched = time.perf_counter() - begin
        if self._stamped is None:
            graph = tf.compat.v1.wrap_function(
                self._one_stamped_step, [tf.TensorSpec.from_tensor(tensor) for tensor in batch]
            )
            self._stamped = tf.function(graph)
        self._losses, stamps = self._run(self._stamped, *batch)
        end = time.perf_counter() - begin
        forward, *ready = (float(stamp) - wall for stamp in stamps.numpy())
        return StepStamps(fetched=fetched, forward=[forward], backward=[max(ready)], ready=ready, end=end)

    def _one_stamped_step(self, *batch: Any) -> tuple[list[Any], Any]:
        """The losses, and seconds since the epoch: the end of forward, then each gradient's."""
        graph = tf.compat.v1.get_default_graph()
        self._num_forward = 0
        losses, groups, updates = self._differentiate(*batch)
        needed = _needed_backward(graph.get_operations(), self._num_forward)
        stamps = [_stamp(needed or losses), *(_stamp([gradient]) for gradient in flat(groups))]
        before = len(graph.get_operations())
        with tf.control_dependencies(stamps):
            self._update(flat(groups))
            assign(updates)
        with tf.control_dependencies(graph.get_operations()[before:]):
            return [tf.identity(loss) for loss in losses], tf.stack(stamps)

    def _note_forward(self, tape: Any) -> Any:
        """Between the two passes; not where XLA compiles both."""
        self._num_forward = len(tf.compat.v1.get_default_graph().get_operations())
        return tape


def _needed_backward(operations: Sequence[Any], num_forward: int) -> list[Any]:
    """The forward operations whose results backpropagation reads: when they are done, it can do all of its work.

    The loss is none of them: nothing waits for its mean.
    """
    forward = set(operations[:num_forward])
    backward = operations[num_forward:]
    return [
        operation
        for operation in dict.fromkeys(tensor.op for later in backward for tensor in later.inputs)
        if operation in forward
    ]


def _stamp(awaited: Sequence[Any]) -> Any:
    with tf.control_dependencies(awaited):
        return tf.timestamp()


def alone(replica: Any) -> TensorFlowStampedTrainer:
    """The replica as it is."""
    return TensorFlowStampedTrainer(replica)
