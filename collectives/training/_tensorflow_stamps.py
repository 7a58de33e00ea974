"""Steps of TensorFlow with stamps, which are operations of the step's graph: each waits for what it stamps.

A `tf.function` would run operations with state, as these are, one after the other in the order of the graph, and a
gradient would count as complete when those before it are. So the stamped step is a graph of version 1, where only
dependencies order operations, and the update waits for all gradients, as it does behind an exchange. Where XLA
compiles the network, all gradients come at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from dlscale.collectives.training._tensorflow import NoExchange, TensorFlowTrainer, assign
from dlscale.collectives.training.stamps import StepStamps

# TensorFlow takes every operation for a long one, and puts it behind the others, until it has measured that it is not:
# of an estimate of 1e8 cycles a tenth goes with each run, and below 8000 it is short: 90 runs, and 102 were seen.
SETTLING_STEPS = 120


class TensorFlowStampedTrainer(TensorFlowTrainer):
    """A replica alone (`stamps.StampedTrainer`)."""

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
        gradients = [gradient for group in groups for gradient in group]
        needed = _needed_backward(graph.get_operations(), self._num_forward)
        stamps = [_stamp(needed or losses), *(_stamp([gradient]) for gradient in gradients)]
        before = len(graph.get_operations())
        with tf.control_dependencies(stamps):
            self._update(gradients)
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


def stamped(replica: Any) -> TensorFlowStampedTrainer:
    """The replica as it is, with steps that can be stamped."""
    return TensorFlowStampedTrainer(replica)
