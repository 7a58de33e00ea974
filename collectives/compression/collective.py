"""A collective whose averages of float32 are compressed; all else passes through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Collective
from dlscale.collectives.buffers import check_buffer
from dlscale.collectives.compression.compressor import BucketState, Carrier, Compressor, Message


class CarryingCollective(Collective, Carrier, Protocol):
    """A collective that compressed gradients can travel by."""


class CompressedCollective:
    """Another collective's operations; an average of float32 is that of a bucket (`Collective`).

    A bucket is known by its place in memory, which must hold the same gradients every time. One rank alone has
    nothing to send, and compresses nothing. `num_bytes` counts what this rank has sent, as the best algorithm for long
    messages does: (P - 1) m for messages of m bytes that all ranks get from all, 2 (P - 1) / P m for a sum of m bytes.
    """

    def __init__(self, carrier: CarryingCollective, compressor: Compressor) -> None:
        self._carrier, self._compressor = carrier, compressor
        self._states: dict[tuple[int, int], BucketState] = {}
        self.rank, self.size = carrier.rank, carrier.size
        self.num_bytes = 0.0

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """Average a bucket, or what the other collective does. Raises UsageError for averages of other floats."""
        if op != "average" or self.size == 1:
            self._carrier.allreduce(buffer, op)
            return
        if buffer.dtype != np.float32:
            raise UsageError(
                f"compression takes float32 gradients, and these are {buffer.dtype}; compute in float32, or leave "
                "the option compression out"
            )
        check_buffer(buffer)
        flat = buffer.reshape(-1)
        self._compressor.average(flat, self.state_of(flat), self)

    def allgather_bytes(self, message: Message) -> Sequence[Message]:
        """The carrier's, counted (`Carrier`)."""
        self.num_bytes += (self.size - 1) * message.nbytes
        return self._carrier.allgather_bytes(message)

    def average_halves(self, values: NDArray[Any]) -> None:
        """The carrier's, counted (`Carrier`)."""
        self.num_bytes += 2 * (self.size - 1) / self.size * values.nbytes
        self._carrier.average_halves(values)

    def state_of(self, bucket: NDArray[Any]) -> BucketState:
        """What this rank keeps of a bucket; empty before the first average."""
        return self._states.setdefault((bucket.ctypes.data, bucket.size), {})

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        return self._carrier.empty(count, dtype)

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        self._carrier.broadcast(buffer, root)

    def barrier(self) -> None:
        self._carrier.barrier()

    def settings(self) -> dict[str, str | int | float | bool]:
        return self._carrier.settings()

    def close(self) -> None:
        self._carrier.close()
