"""A replica's neighbours over any carrier, counted where rows are handed over: for the record, and for a control."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from dlscale.models.parallel.exchanges import Call

MOST_CALLS = 1 << 12  # that are remembered: more than a step has

Parts = list[tuple[int, Any]]
"""Ranks of a replica, and the arrays that go to them or come from them."""


class Carrier(Protocol):
    """The ranks of one replica. All but `settings` is collective over them and blocking.

    Arrays are as `models.parallel.Neighbours` has them.
    """

    index: int  # of this rank in its replica; 0 has the top rows
    takes_tensors: bool

    def exchange(self, sends: Parts, receives: Parts) -> None:
        """Send arrays to ranks and receive arrays from ranks, equal in bytes."""

    def sum(self, values: Any) -> None:
        """The sum over the ranks, in place; all get the same bits."""

    def gather(self, own: Any, whole: Any, counts: Sequence[int]) -> None:
        """Fill `whole` with all ranks' `own`, of which each has so many along the first axis."""

    def settings(self) -> dict[str, str | int | float | bool]:
        """Its own decisions, for the record."""

    def close(self) -> None:
        """Leave the replica. A second close does nothing."""


class CarriedNeighbours:
    """The ranks of this replica (`models.parallel.Neighbours`), with this rank's seconds and bytes so far.

    The seconds have what a rank waits for its neighbours: the rank that spends least waits for nobody.
    """

    def __init__(self, carrier: Carrier, *, split: int) -> None:
        self.carrier, self.index, self.split = carrier, carrier.index, split
        self.takes_tensors = carrier.takes_tensors
        self.seconds, self.bytes_sent, self.num_calls = 0.0, 0, 0
        self._calls: deque[Call] = deque(maxlen=MOST_CALLS)

    def exchange(self, up: Any, down: Any, from_up: Any, from_down: Any) -> None:
        begin = time.perf_counter()
        above, below = self.index - 1, self.index + 1
        sends = [(rank, array) for rank, array in ((above, up), (below, down)) if array is not None]
        receives = [
            (rank, array) for rank, array in ((above, from_up), (below, from_down)) if array is not None
        ]
        self.carrier.exchange(sends, receives)
        self._count(begin, "exchange", 0 if up is None else up.nbytes, 0 if down is None else down.nbytes)

    def sum(self, values: Any) -> None:
        begin = time.perf_counter()
        self.carrier.sum(values)
        self._count(begin, "sum", values.nbytes)

    def gather(self, own: Any, whole: Any, counts: Sequence[int]) -> None:
        begin = time.perf_counter()
        self.carrier.gather(own, whole, counts)
        self._count(begin, "gather", own.nbytes)

    def last_calls(self) -> list[Call]:
        """The last ones, in order."""
        return list(self._calls)

    def settings(self) -> dict[str, str | int | float | bool]:
        return self.carrier.settings()

    def close(self) -> None:
        self.carrier.close()

    def _count(self, begin: float, operation: str, *num_bytes: int) -> None:
        self.seconds += time.perf_counter() - begin
        self.bytes_sent += sum(num_bytes)
        self.num_calls += 1
        self._calls.append(Call(operation, num_bytes))
