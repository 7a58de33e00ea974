"""Counts what a trainer hands to its collectives: an audit compares it with what the trainer says of itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dlscale.collectives.backend import Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Operations on gradients and sharded weights so far, over all collectives; None where nobody tells."""

    num_calls: int
    num_bytes: int | None = None
    threads: frozenset[int] | None = None  # that called


class CountedCollective:
    """Another collective, whose averages and gathers are counted; all else is its own (`Collective`)."""

    def __init__(self, collective: Collective) -> None:
        self._collective = collective
        self.num_calls = self.num_bytes = 0
        self.gather_seconds = 0.0
        self.threads: set[int] = set()

    def allreduce(self, buffer: NDArray[Any], op: str = "sum", **named: Any) -> None:
        """Count the call if it is of gradients, and do it."""
        if op == "average":
            self._count(buffer)
        self._collective.allreduce(buffer, op, **named)

    def reduce_scatter(self, buffer: NDArray[Any], output: NDArray[Any], op: str = "sum") -> None:
        """Count the call, with the bytes of all parts, and do it."""
        self._count(buffer)
        self._collective.reduce_scatter(buffer, output, op)  # type: ignore[attr-defined]

    def allgather(self, piece: NDArray[Any], output: NDArray[Any]) -> None:
        self._count(output)
        begin = time.perf_counter()
        self._collective.allgather(piece, output)  # type: ignore[attr-defined]
        self.gather_seconds += time.perf_counter() - begin

    def _count(self, whole: NDArray[Any]) -> None:
        self.num_calls += 1
        self.num_bytes += whole.nbytes
        self.threads.add(threading.get_ident())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collective, name)


def moved_by(collectives: Sequence[CountedCollective]) -> Moved:
    """What all of them did so far; the threads are those since the last call."""
    threads = frozenset().union(*(collective.threads for collective in collectives))
    for collective in collectives:
        collective.threads = set()
    return Moved(
        num_calls=sum(collective.num_calls for collective in collectives),
        num_bytes=sum(collective.num_bytes for collective in collectives),
        threads=threads,
    )
