"""The pipelined TensorFlow trainer: a step applies the means of the step before, whose exchange had a step's time."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from dlscale.collectives.fronts._tensorflow import LateExchange, Setting, TensorFlowTrainer, assign
from dlscale.collectives.training import Training


class LateTrainer(TensorFlowTrainer):
    """`TensorFlowTrainer` whose updates come one step late, until the cool-down (`Trainer`).

    Batch norm's statistics are those of the step itself: only gradients travel.
    """

    def __init__(self, replica: Any, exchange: LateExchange, training: Training) -> None:
        super().__init__(replica, exchange)
        self._late_exchange, self._training = exchange, training
        self._num_steps = 0
        self._first = tf.function(self._first_step)
        self._late = tf.function(self._late_step)
        self._drain = tf.function(self._apply_what_is_left)

    def step(self) -> None:
        """Train on one local batch; apply the means of the step before, if there is one and cool-down has not begun."""
        number = self._num_steps
        self._num_steps += 1
        if self._training.drains(number):
            self._run(self._drain)
        function = self._step
        if self._training.is_late(number):
            function = self._late if number else self._first
        self._losses = self._run(function, *self._replica.next_batch())

    def synchronize(self) -> None:
        """Return when no exchange is under way."""
        self._late_exchange.synchronize()

    def settings(self) -> dict[str, Setting]:
        """What the exchange decided by itself, and which steps are late."""
        return {**super().settings(), **self._training.settings()}

    def _first_step(self, *batch: Any) -> list[Any]:
        losses, gradients, updates = self._differentiate(*batch)
        self._late_exchange.send([gradient for group in gradients for gradient in group])
        assign(updates)
        return list(losses)

    def _late_step(self, *batch: Any) -> list[Any]:
        losses, groups, updates = self._differentiate(*batch)
        gradients = [gradient for group in groups for gradient in group]
        with tf.control_dependencies(gradients):  # waiting earlier would leave the exchange no time
            means = self._late_exchange.collect(gradients)
        with tf.control_dependencies(means):
            self._late_exchange.send(gradients)
        self._update(means)
        assign(updates)
        return list(losses)

    def _apply_what_is_left(self) -> None:
        variables = [variable for objective in self._replica.objectives for variable in objective.parameters]
        self._update(self._late_exchange.collect(variables))
