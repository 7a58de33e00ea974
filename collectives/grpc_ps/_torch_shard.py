"""The weights that one server holds for a trainer, and the optimizers that update them."""

from __future__ import annotations

import inspect
import os
import warnings
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dlscale.collectives.grpc_ps._torch_optimizers import build
from dlscale.collectives.grpc_ps.mean import OrderedMean
from dlscale.collectives.grpc_ps.messages import WEIGHTS, RefusedError, Session, pack
from dlscale.collectives.grpc_ps.shards import BYTES_PER_ELEMENT, Chunk, chunks

Floats = NDArray[np.float32]


class ServedChunk:
    """One chunk of weights; whoever changes it holds `lock`.

    It has an optimizer of its own, for torch's are not to be called by several threads at once.
    """

    def __init__(self, index: int, chunk: Chunk, weights: Floats, session: Session) -> None:
        self._index, self._chunk = index, chunk
        self._weights = weights
        self._parameter = nn.Parameter(torch.from_numpy(weights))
        self._optimizer = build(session.optimizers[chunk.optimizer], self._parameter)
        # Without what torch wraps around it for profilers, which lets go of the interpreter several times: here
        # threads that carry messages then take it, and an update waits for each of them.
        self._step = inspect.unwrap(type(self._optimizer).step)
        num_parts = 1 if session.asynchronous else session.num_workers
        self.mean = OrderedMean(count=chunk.count, num_workers=num_parts)
        self.lock = Lock()
        self.first: bytes | None = None  # the message with the first weights, until all workers have it
        self.steps = [-1] * session.num_workers  # of each worker, the last that was applied

    def load(self, values: Floats) -> None:
        """The first weights."""
        self._weights[:] = values

    def apply(self, gradient: Floats, step: int) -> bytes:
        """Update the weights by a gradient; returns the message with the new ones. Raises RefusedError."""
        self._parameter.grad = torch.from_numpy(gradient)
        try:
            with torch.no_grad():
                self._step(self._optimizer)
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise RefusedError(f"{type(self._optimizer).__name__}: {error}") from None
        self._parameter.grad = None  # it may be a view of a message
        return pack(WEIGHTS, self._index, step, self._chunk, [self._weights])


def served_chunks(session: Session) -> tuple[list[Chunk], list[ServedChunk]]:
    """A shard's chunks and what is held for them, all zero. Raises RefusedError for weights it has no room for."""
    num_bytes = BYTES_PER_ELEMENT * sum(region.count for region in session.layout())
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if num_bytes > room:
        raise RefusedError(f"a shard of {num_bytes} bytes; this machine has {room}")
    layout = chunks(session.layout(), chunk_elements=session.chunk_elements)
    weights = np.zeros(sum(chunk.count for chunk in layout), dtype=np.float32)
    _accept_read_only()
    return layout, [
        ServedChunk(index, chunk, weights[chunk.offset : chunk.offset + chunk.count], session)
        for index, chunk in enumerate(layout)
    ]


def _accept_read_only() -> None:
    """Torch warns, once in a process, of tensors over memory that may not be written: messages.

    No optimizer writes to a gradient.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.from_numpy(np.frombuffer(bytes(4), dtype=np.float32))
