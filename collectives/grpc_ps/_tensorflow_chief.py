"""The thread of worker 0 that makes the updates of SyncReplicasOptimizer, ended as quietly as it began."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

STOP_SECONDS = 10


class ChiefHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """SyncReplicasOptimizer's own hook, whose thread belongs to a coordinator of ours.

    When the session closes, the thread is waiting for gradients, and what it then raises is no error.
    """

    def __init__(self, optimizer: Any, *, is_chief: bool) -> None:
        # Without tokens to begin with, a step ends when its update is made, and not one update too early.
        self._hook = optimizer.make_session_run_hook(is_chief, num_tokens=0)
        self._coordinator = tf.train.Coordinator(clean_stop_exception_types=(tf.errors.OpError, RuntimeError))

    def begin(self) -> None:
        """Add the operations that it needs to the graph."""
        self._hook.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:  # noqa: ARG002
        """Initialise, and start the thread on worker 0."""
        self._hook.after_create_session(session, self._coordinator)

    def close(self, session: Any) -> None:
        """Close the session, and return when the thread has ended."""
        self._coordinator.request_stop()
        session.close()
        self._coordinator.join(stop_grace_period_secs=STOP_SECONDS, ignore_live_threads=True)
