"""What compressors ask of a collective, and how many bytes a rank sends by it.

The bytes are counted from the messages that were really made. How an MPI moves them is its own business, so each
operation counts as what the best algorithm for long messages sends per rank: (P - 1) m for messages of m bytes that
all ranks get from all, 2 (P - 1) / P m for a sum of m bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Transport(Protocol):
    """What moves compressed gradients between ranks. Every method is collective and blocking."""

    @property
    def rank(self) -> int:
        """This process, 0 .. P - 1."""

    @property
    def size(self) -> int:
        """The number of ranks, P."""

    def allgather_bytes(self, message: NDArray[np.uint8]) -> Sequence[NDArray[np.uint8]]:
        """The messages of all ranks, in order of rank; their lengths may differ. They are valid until the next call."""

    def average_halves(self, values: NDArray[Any]) -> None:
        """Replace float16, or uint16 that holds bfloat16, by its mean over ranks: summed in float32, rounded once."""

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """`Collective.allreduce`."""


class Links:
    """A transport, and the bytes that this rank has sent by it so far, which a bandwidth-optimal algorithm would."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.rank, self.size = transport.rank, transport.size
        self.num_bytes = 0.0

    def allgather_bytes(self, message: NDArray[np.uint8]) -> Sequence[NDArray[np.uint8]]:
        """The transport's, counted."""
        self.num_bytes += (self.size - 1) * message.nbytes
        return self._transport.allgather_bytes(message)

    def average_halves(self, values: NDArray[Any]) -> None:
        """The transport's, counted."""
        self.num_bytes += allreduce_bytes(values.nbytes, num_ranks=self.size)
        self._transport.average_halves(values)

    def average(self, values: NDArray[np.float32]) -> None:
        self.num_bytes += allreduce_bytes(values.nbytes, num_ranks=self.size)
        self._transport.allreduce(values, "average")


def allreduce_bytes(num_bytes: float, *, num_ranks: int) -> float:
    """What a rank sends so that all have the sum of `num_bytes` of each."""
    return 2 * (num_ranks - 1) / num_ranks * num_bytes
