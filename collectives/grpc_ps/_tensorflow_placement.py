"""Which variable lies where in TensorFlow's between-graph replication."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf


def on_servers(spec: Any, *, worker: int, placement: str) -> AbstractContextManager[Any]:
    """A device scope: variables go to servers as `placement` says, everything else to this worker."""
    num_servers = spec.num_tasks("ps")
    strategy = FewestBytes(num_servers) if placement == "size" else None
    setter = tf.compat.v1.train.replica_device_setter(
        cluster=spec, worker_device=worker_device(worker), ps_strategy=strategy
    )
    scope: AbstractContextManager[Any] = tf.compat.v1.device(setter)
    return scope


def worker_device(worker: int) -> str:
    """The device of a worker's computation."""
    return f"/job:worker/task:{worker}/device:CPU:0"


class FewestBytes:
    """Gives each variable to the server that has the fewest bytes so far; the setter's `ps_strategy`."""

    def __init__(self, num_servers: int) -> None:
        self._bytes = [0] * num_servers
        self._placed: dict[str, int] = {}

    def __call__(self, operation: Any) -> int:
        """The server of the variable that `operation` makes."""
        if operation.name not in self._placed:
            shape = tf.TensorShape(operation.get_attr("shape")).as_list()
            size = int(np.prod(shape)) * tf.as_dtype(operation.get_attr("dtype")).size
            server = int(np.argmin(self._bytes))
            self._bytes[server] += size
            self._placed[operation.name] = server
        return self._placed[operation.name]


def local_statistics(worker: int) -> Callable[..., Any]:
    """A variable creator: what is not trained stays on the worker, and what is trained is read once per step.

    Without the second, every use of a variable in a step fetches it from its server again.
    """
    device = worker_device(worker)

    def create(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        if arguments.get("trainable") is not False:
            return next_creator(**{**arguments, "caching_device": device})
        with tf.device(device):
            made = next_creator(**arguments)
        of_graph = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        if any(variable is made for variable in of_graph):
            of_graph[:] = [variable for variable in of_graph if variable is not made]
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.LOCAL_VARIABLES, made)
        return made

    return create
