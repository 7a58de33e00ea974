"""The TensorFlow trainer: a step is one `tf.function`, with the exchange of gradients inside it.

The pipelined trainer applies the means of the step before, whose exchange had a whole step's time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dlscale.collectives.training.communication import Training
from dlscale.collectives.training.replica_trainer import ReplicaTrainer

Setting = str | int | float | bool


class GraphExchange(Protocol):
    """Averages gradients over ranks, as operations of the graph of a step."""

    @property
    def failure(self) -> BaseException | None:
        """The error of the exchange, where it is clearer than TensorFlow's own."""

    def average(self, gradients: Sequence[Any]) -> list[Any]:
        """The means over ranks, in order, of all objectives' gradients."""

    def settings(self) -> Mapping[str, Setting]:
        """Its own decisions, for the record."""

    def close(self) -> None:
        """Release what it holds."""


class NoExchange:
    """Every rank keeps its own gradients; also the base of exchanges that hold nothing."""

    failure = None

    def average(self, gradients: Sequence[Any]) -> list[Any]:
        return list(gradients)

    def settings(self) -> Mapping[str, Setting]:
        return {}

    def close(self) -> None:
        """Nothing to release."""


class TensorFlowTrainer(ReplicaTrainer):
    """A replica's objectives, all differentiated and exchanged, and only then all updated (`Trainer`).

    XLA, where it was asked for, compiles the networks and their gradients; exchange and update stay outside.
    `tape` wraps the gradient tape, for libraries that exchange in it.
    """

    def __init__(
        self, replica: Any, exchange: GraphExchange, *, tape: Callable[[Any], Any] = lambda tape: tape
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
        losses, gradients, updates = self._differentiate(*batch)
        self._update(self._exchange.average([gradient for group in gradients for gradient in group]))
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


class FlatCopies:
    """Copies of a replica's weights as flat float32 arrays on the host, in canonical order."""

    def __init__(self, replica: Any) -> None:
        self._replica = replica
        self._shapes = [weight.shape for weight in replica.weights()]
        self._ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        self.count = int(self._ends[-1])

    def read(self, buffer: NDArray[Any]) -> None:
        np.concatenate([weight.reshape(-1) for weight in self._replica.weights()], out=buffer)

    def write(self, buffer: NDArray[Any]) -> None:
        parts = np.split(buffer, self._ends[:-1])
        self._replica.load([part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)])


class PipelinedExchange(GraphExchange, Protocol):
    """An exchange that can take longer than the step that begins it."""

    def send(self, gradients: Sequence[Any]) -> None:
        """Begin to average."""

    def collect(self, like: Sequence[Any]) -> list[Any]:
        """The means of what was sent; `like` has its order, shapes and dtypes."""

    def synchronize(self) -> None:
        """Return when nothing is under way."""


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


def alone(replica: Any) -> TensorFlowTrainer:
    """The replica as it is."""
    return TensorFlowTrainer(replica, NoExchange())


class PipelinedTrainer(TensorFlowTrainer):
    """`TensorFlowTrainer` whose updates are delayed by one step, until the cool-down (`Trainer`).

    Batch norm's statistics are those of the step itself: only gradients travel.
    """

    def __init__(self, replica: Any, exchange: PipelinedExchange, training: Training) -> None:
        super().__init__(replica, exchange)
        self._pipelined_exchange, self._training = exchange, training
        self._num_steps = 0
        self._first = replica.traced(self._first_step)
        self._pipelined = replica.traced(self._pipelined_step)
        self._drain = replica.traced(self._apply_what_is_left)

    def step(self) -> None:
        """Train on one local batch; apply the means of the step before, if there is one and cool-down has not begun."""
        number = self._num_steps
        self._num_steps += 1
        if self._training.drains(number):
            self._run(self._drain)
        function = self._step
        if self._training.is_delayed(number):
            function = self._pipelined if number else self._first
        self._losses = self._run(function, *self._replica.next_batch())

    def synchronize(self) -> None:
        """Return when no exchange is under way, and a GPU has nothing left to do."""
        super().synchronize()
        self._pipelined_exchange.synchronize()

    def settings(self) -> dict[str, Setting]:
        """The exchange's own decisions, and which steps are delayed."""
        return {**super().settings(), **self._training.settings()}

    def _first_step(self, *batch: Any) -> list[Any]:
        losses, gradients, updates = self._differentiate(*batch)
        self._pipelined_exchange.send([gradient for group in gradients for gradient in group])
        assign(updates)
        return list(losses)

    def _pipelined_step(self, *batch: Any) -> list[Any]:
        losses, groups, updates = self._differentiate(*batch)
        gradients = [gradient for group in groups for gradient in group]
        with tf.control_dependencies(gradients):  # waiting earlier would leave the exchange no time
            means = self._pipelined_exchange.collect(gradients)
        with tf.control_dependencies(means):
            self._pipelined_exchange.send(gradients)
        self._update(means)
        assign(updates)
        return list(losses)

    def _apply_what_is_left(self) -> None:
        variables = [variable for objective in self._replica.objectives for variable in objective.parameters]
        self._update(self._pipelined_exchange.collect(variables))
