"""Weights on their way back to a worker."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Condition

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.grpc_ps.messages import WEIGHTS, Message, RefusedError, unpack
from dlscale.collectives.grpc_ps.shards import Chunk

Floats = NDArray[np.float32]
Places = Sequence[Floats]
"""Where in the parameters' memory a chunk's elements go, in order."""


class Arrivals:
    """Puts chunks of weights into the parameters, once nothing is computed from the old ones any more.

    Until then messages are kept as they came.
    """

    def __init__(self, layouts: list[list[Chunk]], places: Sequence[Sequence[Places]]) -> None:
        self._layouts, self._places = layouts, places
        self._changed = Condition()
        self._early: list[tuple[int, Message]] = []
        self._may_place = False
        self._step = -1
        self._missing = 0
        self._failure: Exception | None = None

    def begin(self, step: int) -> None:
        """Every chunk is to come once, for this step; the parameters are still needed."""
        with self._changed:
            self._step = step
            self._missing = sum(len(layout) for layout in self._layouts)
            self._may_place = False

    def take(self, server: int, raw: bytes) -> None:
        """A message from a server, by the thread that receives it. Raises RefusedError for one that is not due."""
        message = unpack(raw, self._layouts[server])
        if message.kind != WEIGHTS or message.step != self._step:
            raise RefusedError(
                f"grpc_ps: server {server} sent a message of kind {message.kind} at step {message.step}; "
                f"weights of step {self._step} are due"
            )
        with self._changed:
            if not self._may_place:
                self._early.append((server, message))
                return
        self._place(server, message)

    def fail(self, error: Exception) -> None:
        """Nothing more will come from some server."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def check(self) -> None:
        """Raises what went wrong, if anything did."""
        if self._failure:
            raise self._failure

    def finish(self) -> None:
        """Return when all weights are in the parameters. Raises what went wrong."""
        with self._changed:
            self._may_place = True
            early, self._early = self._early, []
        for server, message in early:
            self._place(server, message)
        with self._changed:
            self._changed.wait_for(lambda: not self._missing or self._failure)
            self.check()

    def _place(self, server: int, message: Message) -> None:
        start = 0
        for place in self._places[server][message.chunk]:
            place[:] = message.values[start : start + place.size]
            start += place.size
        with self._changed:
            self._missing -= 1
            if not self._missing:
                self._changed.notify_all()
