"""The memory that messages lie in, and what is done to it beside the collective operations."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from dlscale.benchmarks.records.collective_operations import ITEM_BYTES

Call = Callable[[], Any]

HUGE_PAGE_BYTES = 2 * 2**20


class Memory(Protocol):
    """Where messages lie: arrays of float32 that can be sliced. What its methods do is done when they return."""

    def empty(self, count: int) -> Any:
        """An array of so many elements."""

    def fill(self, message: Any, value: float) -> None:
        """Write all of it."""

    def put(self, message: Any, values: Any) -> None:
        """Copy from a NumPy array."""

    def get(self, message: Any) -> Any:
        """A NumPy array of what is there."""

    def stream(self, message: Any) -> Call:
        """A call that adds to all of it: what bounds every allreduce of a node."""


class HostMemory:
    """NumPy arrays. Libraries may give back tensors on the host."""

    def empty(self, count: int) -> Any:
        """An array that begins at a huge page, and lies on such pages where the system has any.

        The first 2 MiB of NumPy's own arrays are on such or on small ones by chance, in each process anew, and the
        kernel copies half as fast from small ones.
        """
        num_bytes = count * ITEM_BYTES
        room = mmap.mmap(-1, num_bytes + 2 * HUGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without huge pages
            room.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(room, np.uint8)
        begin = -raw.ctypes.data % HUGE_PAGE_BYTES
        return raw[begin : begin + num_bytes].view(np.float32)

    def fill(self, message: Any, value: float) -> None:
        message.fill(value)

    def put(self, message: Any, values: Any) -> None:
        message[:] = values

    def get(self, message: Any) -> Any:
        """The same memory as an array."""
        return np.asarray(message)

    def stream(self, message: Any) -> Call:
        return partial(np.add, message, np.float32(1), out=message)


HOST = HostMemory()


class TorchMemory:
    """Tensors on a device, for instance a GPU; `wait` returns when the device has done what it was given."""

    def __init__(self, device: Any, wait: Call) -> None:
        self.device, self.wait = device, wait

    def empty(self, count: int) -> Any:
        """A tensor."""
        import torch

        return torch.empty(count, dtype=torch.float32, device=self.device)

    def fill(self, message: Any, value: float) -> None:
        message.fill_(value)
        self.wait()

    def put(self, message: Any, values: Any) -> None:
        import torch

        message.copy_(torch.from_numpy(values))
        self.wait()

    def get(self, message: Any) -> Any:
        """A copy on the host."""
        return message.cpu().numpy()

    def stream(self, message: Any) -> Call:
        return ended(partial(message.add_, 1), self.wait)


def ended(call: Call, wait: Call | None) -> Call:
    """The call, which returns when the device has done it."""
    if wait is None:
        return call

    def both() -> None:
        call()
        wait()

    return both
