"""The TensorFlow trainer whose updates are deferred to the next step's forward pass (`deferral`).

A step's graph begins with the updates of the step before. TensorFlow has a layer wait for the updates of its own
variables only, and an update for the means of its own bucket.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from dlscale.collectives.training._tensorflow import TensorFlowTrainer, assign, on_gpu
from dlscale.collectives.training._tensorflow_native import NativeExchange
from dlscale.collectives.training.deferral import NUM_MEASURED_STEPS, DeferredUpdates


def obstacle_to_deferral(replica: Any) -> str:
    """Why a replica's updates cannot be deferred; empty if they can."""
    if replica.compiled:
        return "a compiled network is one operation, before which all layers must be up to date"
    if replica.schedule:
        return "the learning rate changes with every step, and deferred updates are made in the next one"
    if on_gpu(replica):
        return "no GPU was ever tried with it; leave it out"
    if tf.config.threading.get_inter_op_parallelism_threads() == 1:
        return "TensorFlow runs one operation at a time here, and one has to wait for means"
    return ""


class DeferredTrainer(DeferredUpdates, TensorFlowTrainer):
    """`TensorFlowTrainer` whose updates are made as the next step needs them, or on `synchronize` (`Trainer`)."""

    def __init__(self, replica: Any, exchange: NativeExchange) -> None:
        super().__init__(replica, exchange)
        self._deferred_exchange = exchange
        self._first = replica.traced(self._compute_and_send)
        self._next = replica.traced(self._update_and_compute)
        self._rest = replica.traced(self._update_what_is_due)
        self._is_due = False
        self._num_steps = 0

    def step(self) -> None:
        """Train on one local batch, each layer as soon as its weights are those of the step before."""
        function = self._next if self._is_due else self._first
        self._losses = self._run(function, *self._replica.next_batch())
        self._is_due = True
        self._num_steps += 1
        if self._num_steps == NUM_MEASURED_STEPS:
            self._make_updates()
            self._deferred_exchange.plan()

    def _make_updates(self) -> None:
        if self._is_due:
            self._run(self._rest)
        self._is_due = False

    def _compute_and_send(self, *batch: Any) -> list[Any]:
        losses, groups, updates = self._differentiate(*batch)
        self._deferred_exchange.send([gradient for group in groups for gradient in group])
        assign(updates)
        return list(losses)

    def _update_and_compute(self, *batch: Any) -> list[Any]:
        self._update_what_is_due()
        return self._compute_and_send(*batch)

    def _update_what_is_due(self) -> None:
        variables = [variable for objective in self._replica.objectives for variable in objective.parameters]
        self._update(self._deferred_exchange.collect_each(variables))
