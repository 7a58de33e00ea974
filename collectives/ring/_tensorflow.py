"""Gradients averaged over a ring in anybody's TensorFlow program: inside `tf.function`, or eagerly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Collective
from dlscale.collectives.training._tensorflow_native import NativeExchange, with_threads
from dlscale.collectives.training.communication import AUTOMATIC


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def exchange_over(rings: Sequence[Collective], *, threads: bool | None = None) -> NativeExchange:
    """The exchange over `rings`, one per team, made when it is first asked for; collective then.

    There is only one: exchanges with threads of their own over the same rings would not keep to one order. Raises
    UsageError if another one was asked for before.
    """
    known = vars(rings[0]).setdefault("_tensorflow", {})  # so that it goes when the ring goes
    asked = tuple(map(id, rings)), threads
    if not known:
        teams = AUTOMATIC if threads is None else len(rings) * threads
        known["exchange"] = NativeExchange(rings, threads=with_threads(rings[0], teams))
        known["asked"] = asked
    elif known["asked"] != asked:
        raise UsageError(
            "gradients are averaged over this ring already, with other teams or threads; "
            "give the same rings and threads everywhere, or another ring"
        )
    exchange: NativeExchange = known["exchange"]
    return exchange


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def average(exchange: NativeExchange, gradients: Sequence[Any]) -> list[Any]:
    """The means over ranks, in order; None stays None, and sparse gradients come back dense.

    Raises UsageError inside a function that XLA compiles.
    """
    if not tf.executing_eagerly():
        _refuse_xla(tf.compat.v1.get_default_graph())
    there = [gradient for gradient in gradients if gradient is not None]
    means = iter(exchange.average(there))
    return [None if gradient is None else next(means) for gradient in gradients]


def _refuse_xla(graph: Any) -> None:
    """Look for XLA around the graph that is being built; TensorFlow has no public name for it."""
    while graph is not None:
        context = graph._get_control_flow_context()
        if context is not None and context.IsXLAContext():
            raise UsageError(
                "gradients are averaged inside a function that XLA compiles, which cannot call an MPI library; "
                "leave jit_compile=True out, or compile only the network and its gradients"
            )
        graph = getattr(graph, "outer_graph", None)
