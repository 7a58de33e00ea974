"""The memory that messages lie in, and what is done to it beside the collective operations."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from .conventions import ITEM_BYTES

PAGE_ELEMENTS = 1024

Call = Callable[[], Any]


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
        """An array."""
        return np.empty(count, np.float32)

    def fill(self, message: Any, value: float) -> None:
        """Write all of it."""
        message.fill(value)

    def put(self, message: Any, values: Any) -> None:
        """Copy."""
        message[:] = values

    def get(self, message: Any) -> Any:
        """The same memory as an array."""
        return np.asarray(message)

    def stream(self, message: Any) -> Call:
        """Each rank adds to its own memory."""
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
        """Write all of it."""
        message.fill_(value)
        self.wait()

    def put(self, message: Any, values: Any) -> None:
        """Copy."""
        import torch

        message.copy_(torch.from_numpy(values))
        self.wait()

    def get(self, message: Any) -> Any:
        """A copy on the host."""
        return message.cpu().numpy()

    def stream(self, message: Any) -> Call:
        """Each rank adds to its own memory."""
        return ended(partial(message.add_, 1), self.wait)


def ended(call: Call, wait: Call | None) -> Call:
    """The call, which returns when the device has done it."""
    if wait is None:
        return call

    def both() -> None:
        call()
        wait()

    return both


class Arena:
    """All messages of an operation. A cold one comes after all others, so that no cache has it."""

    def __init__(self, memory: Memory, array: Any) -> None:
        self.memory, self._array, self._cursor = memory, array, 0
        # Positive, so that sums over sums only grow to infinity: zeros might be stored more cheaply, and denormal
        # numbers are added slowly.
        memory.fill(array, 1.0)

    def next(self, mode: str, message_bytes: int, count: int) -> Any:
        """The message of the next call, `count` elements that take up to `message_bytes`."""
        if mode != "cold":
            return self._array[:count]
        if self._cursor + whole_pages(message_bytes) > len(self._array):
            self._cursor = 0
        message = self._array[self._cursor : self._cursor + count]
        self._cursor += whole_pages(message_bytes)
        return message


def arena_elements(options: argparse.Namespace) -> int:
    """The length of an arena: the largest message, and behind it more than the caches hold if calls are cold.

    No message that is as large as that is cold.
    """
    return whole_pages(max(options.sizes)) + (
        whole_pages(options.cold_bytes) if "cold" in options.modes else 0
    )


def whole_pages(num_bytes: int) -> int:
    """Elements of as many whole pages as `num_bytes` need."""
    return -(-num_bytes // (ITEM_BYTES * PAGE_ELEMENTS)) * PAGE_ELEMENTS
