"""Passes of TensorFlow that sleep instead of computing (`models/slept.py`).

Each sleep begins at the moment that the one before ended at, which is its input, and in the forward pass not before the
layer's weights are there. Nothing else orders them: the operations have no state that TensorFlow knows of, or a
`tf.function` would have every exchange, which has, wait for the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from dlscale.models.frameworks._tensorflow_replica import Forward, TensorFlowObjective
from dlscale.models.slept import SleepOperations, Slept, SleptPass


class SleptPasses:
    """What sleeps in the place of a program's networks: the forward pass, and the gradients of its losses.

    Each parameter's gradient is filled with the mean of the batch's first tensor, within the sleep.
    """

    def __init__(
        self, objectives: Sequence[TensorFlowObjective], slept: Slept, operations: SleepOperations | None
    ) -> None:
        if operations is None:
            raise ValueError(
                "a graph of TensorFlow can only sleep by an operation: Execution.sleep is missing"
            )
        self._objectives, self._operations = tuple(objectives), operations
        self._passes = slept.passes([objective.names for objective in objectives])

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def forward(self, *batch: Any) -> Forward:
        """Losses that are the mean of the batch's first tensor each; nothing else is updated.

        A layer begins when the one before has ended and its weights are there, which may come from servers.
        """
        weights = [
            [tf.convert_to_tensor(parameter) for parameter in objective.parameters]
            for objective in self._objectives
        ]
        clock = _Clock(self._operations, batch[0])
        with tf.control_dependencies([clock.now]):
            mean = tf.reduce_mean(tf.cast(batch[0], tf.float64))
        for tensors, sleeps in zip(weights, self._passes, strict=True):
            for weight, seconds in zip(tensors, sleeps.forward(), strict=True):
                clock.wait_for(weight)
                mean = clock.sleep(seconds, mean)
        losses = [
            _loss(mean, tensors, sleeps, clock) for tensors, sleeps in zip(weights, self._passes, strict=True)
        ]
        return Forward(losses=losses, updates=[])


class _Clock:
    """The moment that a step has come to, in the order in which its sleeps are added to the graph."""

    def __init__(self, operations: SleepOperations, first: Any) -> None:
        self._operations = operations
        self.now = operations.arrival(first)
        self.now.set_shape([])

    def wait_for(self, awaited: Any) -> None:
        """Go on when it is there, if that is later. Its arrival is noted apart, or a sleep's lateness would count."""
        arrival = self._operations.arrival(awaited)
        arrival.set_shape([])
        self.now = tf.maximum(self.now, arrival)

    def sleep(self, seconds: float, held: Any) -> Any:
        """What is held, `seconds` later."""
        self.now, handed_on = self._operations.sleep(self.now, tf.constant(seconds, tf.float64), held)
        return handed_on


def _loss(mean: Any, weights: Sequence[Any], sleeps: SleptPass, clock: _Clock) -> Any:
    """A loss whose gradients are ready one after the other; those of the next objective follow the last of them."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def loss_of(*weights: Any) -> Any:
        def gradients(_: Any) -> list[Any]:
            ready: dict[int, Any] = {}
            for place, seconds in sleeps.gradients:
                weight = weights[place]
                with tf.control_dependencies([clock.now]):
                    gradient = tf.fill(weight.shape, tf.cast(mean, weight.dtype))
                ready[place] = clock.sleep(seconds, gradient)
            return [ready[place] for place in range(len(weights))]

        return tf.cast(mean, tf.float32), gradients

    return loss_of(*weights)
