"""Passes of TensorFlow that sleep instead of computing (`models/slept.py`).

Each sleep begins at the moment that the one before ended at, which is its input. Nothing else orders them: the
operation has no state that TensorFlow knows of, or a `tf.function` would have every exchange, which has, wait for the
last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import tensorflow as tf

from dlscale.models.frameworks._tensorflow import Forward, TensorFlowObjective
from dlscale.models.slept import Slept, SleptPass


class SleptPasses:
    """What sleeps in the place of a program's networks: the forward pass, and the gradients of its losses.

    `sleep(begin, seconds, held)` is the operation that hands on what it holds at begin + seconds of the wall clock, and
    gives (that moment, what it held). Each parameter's gradient is filled with the mean of the batch's first tensor,
    within the sleep.
    """

    def __init__(
        self, objectives: Sequence[TensorFlowObjective], slept: Slept, sleep: Callable[..., Any] | None
    ) -> None:
        if sleep is None:
            raise ValueError(
                "a graph of TensorFlow can only sleep by an operation: Execution.sleep is missing"
            )
        self._objectives, self._sleep = tuple(objectives), sleep
        self._passes = slept.passes([objective.names for objective in objectives])

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def forward(self, *batch: Any) -> Forward:
        """Losses that are the mean of the batch's first tensor each; nothing else is updated.

        The pass begins when batch and weights are there, which may come from servers.
        """
        weights = [
            [tf.convert_to_tensor(parameter) for parameter in objective.parameters]
            for objective in self._objectives
        ]
        with tf.control_dependencies([batch[0], *chain.from_iterable(weights)]):
            begin = tf.timestamp()
        with tf.control_dependencies([begin]):
            mean = tf.reduce_mean(tf.cast(batch[0], tf.float64))
        clock = _Clock(begin, self._sleep)
        mean = clock.sleep(sum(each.forward_seconds for each in self._passes), mean)
        losses = [
            _loss(mean, tensors, sleeps, clock) for tensors, sleeps in zip(weights, self._passes, strict=True)
        ]
        return Forward(losses=losses, updates=[])


class _Clock:
    """The moment that a step has come to, in the order in which its sleeps are added to the graph."""

    def __init__(self, begin: Any, sleep: Callable[..., Any]) -> None:
        self.now, self._sleep = begin, sleep

    def sleep(self, seconds: float, held: Any) -> Any:
        """What is held, `seconds` later."""
        self.now, handed_on = self._sleep(self.now, tf.constant(seconds, tf.float64), held)
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
