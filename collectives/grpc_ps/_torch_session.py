"""A trainer's session on a server: the weights of its shard, the optimizers that update them, and who has sent what.

Synchronous, a chunk is updated by the thread that receives the last worker's gradient of it, and the same message
with the new weights goes to all. The mean has the same bits whatever order gradients come in. Asynchronous, each
gradient is applied as it comes.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dlscale.collectives.grpc_ps._torch_optimizers import build
from dlscale.collectives.grpc_ps.messages import (
    BYE,
    BYTES_PER_ELEMENT,
    LOOK,
    WEIGHTS,
    Chunk,
    Message,
    RefusedError,
    Session,
    chunks,
    pack,
    pack_slot,
    unpack,
)


class OrderedMean:
    """Adds the workers' gradients in the order of the workers; one that comes early is kept as it came.

    With one worker nothing is copied or computed.
    """

    def __init__(self, *, count: int, num_workers: int) -> None:
        self._num_workers = num_workers
        self._sum = np.empty(count if num_workers > 1 else 0, dtype=np.float32)
        self._waiting: dict[int, NDArray[np.float32]] = {}
        self._first: NDArray[np.float32] | None = None
        self._num_added = 0

    @property
    def is_partial(self) -> bool:
        """Whether some workers' gradients are there and others are missing."""
        return bool(self._num_added or self._waiting)

    def add(self, worker: int, gradient: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """The mean, if this is the last; valid until the next `add`. Raises RefusedError for a worker's second."""
        if worker in self._waiting or worker < self._num_added:
            raise RefusedError(f"worker {worker} sent a gradient twice")
        self._waiting[worker] = gradient
        with np.errstate(over="ignore", invalid="ignore"):  # of training that diverges, which gates tell
            while self._num_added in self._waiting:
                self._take(self._waiting.pop(self._num_added))
        if self._num_added < self._num_workers:
            return None
        self._num_added = 0
        if self._num_workers == 1:
            return gradient
        return np.divide(self._sum, np.float32(self._num_workers), out=self._sum)

    @np.errstate(invalid="ignore", over="ignore")  # what is not finite reaches the weights, and the gates
    def _take(self, gradient: NDArray[np.float32]) -> None:
        if self._num_added == 1 and self._first is not None:
            np.add(self._first, gradient, out=self._sum)
            self._first = None
        elif self._num_added:
            self._sum += gradient
        elif self._num_workers > 1:
            self._first = gradient
        self._num_added += 1


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
        self._num_updates = 0
        self._known = [0] * session.num_workers  # updates of the weights that each worker got last
        self.staleness: Counter[int] = Counter()  # {updates that a gradient had missed: gradients}

    def load(self, values: Floats) -> None:
        self._weights[:] = values

    def count(self, worker: int) -> None:
        """An update by a worker that waits for no other: what its gradient had missed. It gets the new weights."""
        self.staleness[self._num_updates - self._known[worker]] += 1
        self._num_updates += 1
        self._known[worker] = self._num_updates

    def look(self, worker: int, step: int) -> bytes:
        """The message with the weights of now, for a worker that has taken up that step."""
        self._known[worker] = self._num_updates
        return pack(WEIGHTS, self._index, step, self._chunk, [self._weights])

    def kept(self) -> list[bytes]:
        state = self._optimizer.state.get(self._parameter, {})
        return [
            pack_slot(self._index, name, value.detach().float().numpy())
            for name, value in state.items()
            if isinstance(value, torch.Tensor)
        ]

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


Outbox = SimpleQueue[bytes | None]
"""What a worker is still to get; None: there is no more."""


class ServedSession:
    """Weights that workers train. Raises RefusedError for a session that cannot be."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.failure: str | None = None
        self._layout, self._chunks = served_chunks(session)
        self._outboxes: dict[int, Outbox] = {}
        self._left: set[int] = set()
        self._num_updates = [0] * session.num_workers  # of chunks, by each worker
        self._lock = Lock()  # of who takes part; taken after a chunk's lock, never before one

    def join(self, worker: int) -> Outbox:
        """A worker takes part; when all do, they get the first weights. Raises RefusedError."""
        with self._lock:
            if worker in self._outboxes:
                raise RefusedError(f"worker {worker} takes part already")
            if self.failure:
                raise RefusedError(self.failure)
            outbox = self._outboxes[worker] = SimpleQueue()
        for index in range(len(self._chunks)):
            self._send_first(index)
        return outbox

    def take(self, worker: int, raw: bytes) -> bool:
        """Handle a worker's message; False if it ends the stream. Raises RefusedError where it may not come now."""
        message = unpack(raw, self._layout)
        if message.kind == BYE:
            self._leave(worker)
            return False
        chunk = self._chunks[message.chunk]
        with chunk.lock:
            if message.kind == WEIGHTS:
                self._load(worker, message, raw, chunk)
            elif message.kind == LOOK:
                self._look(worker, message, chunk)
            else:
                self._update(worker, message, chunk)
        if message.kind == WEIGHTS:
            self._send_first(message.chunk)
        return True

    def fail(self, text: str) -> None:
        """The session cannot go on: end all streams, with this text where none was said before."""
        with self._lock:
            self.failure = self.failure or text
            for outbox in self._outboxes.values():
                outbox.put(None)

    def has_ended(self) -> bool:
        """Whether it failed, or all workers have taken leave."""
        with self._lock:
            return self.failure is not None or len(self._left) == self.session.num_workers

    def num_applied(self) -> int:
        """Local batches, of all workers, that every chunk of this shard has taken up."""
        return sum(num_updates // len(self._chunks) for num_updates in list(self._num_updates))

    def kept(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            with chunk.lock:
                slots = chunk.kept()
            yield from slots

    def staleness(self) -> dict[int, int]:
        """{updates: gradients of a chunk} that had missed so many, of asynchronous workers."""
        total: Counter[int] = Counter()
        for chunk in self._chunks:
            with chunk.lock:
                total.update(chunk.staleness)
        return dict(total)

    def _look(self, worker: int, message: Message, chunk: ServedChunk) -> None:
        if message.step != chunk.steps[worker]:
            raise RefusedError(
                f"worker {worker} asks for weights at step {message.step}, and chunk {message.chunk} has taken up its "
                f"step {chunk.steps[worker]}"
            )
        if self._outboxes[worker].qsize() > len(self._chunks):
            raise RefusedError(f"worker {worker} asks for weights without taking them")
        self._outboxes[worker].put(chunk.look(worker, message.step))

    def _load(self, worker: int, message: Message, raw: bytes, chunk: ServedChunk) -> None:
        if worker or message.step or chunk.first or chunk.steps[0] >= 0:
            raise RefusedError(
                f"worker {worker} sent weights at step {message.step}; only worker 0 may, once, at 0"
            )
        chunk.load(message.values)
        chunk.first = raw

    def _send_first(self, index: int) -> None:
        """The first weights of a chunk to all workers, if all take part and the weights have come."""
        chunk = self._chunks[index]
        with chunk.lock, self._lock:
            if chunk.first is None or len(self._outboxes) < self.session.num_workers:
                return
            for outbox in self._outboxes.values():
                outbox.put(chunk.first)
            chunk.first = None
            chunk.steps = [0] * self.session.num_workers

    def _update(self, worker: int, message: Message, chunk: ServedChunk) -> None:
        if message.step != chunk.steps[worker] + 1 or chunk.steps[worker] < 0:
            raise RefusedError(
                f"worker {worker} sent a gradient of step {message.step} for chunk {message.chunk}, which has taken "
                f"up its step {chunk.steps[worker]}"
            )
        if self._outboxes[worker].qsize() > len(self._chunks):
            raise RefusedError(f"worker {worker} sends gradients without taking the weights")
        if self.session.asynchronous:
            done, part = [worker], 0
        else:
            done, part = list(range(self.session.num_workers)), worker
        gradient = chunk.mean.add(part, message.values)
        if gradient is None:
            self._check_all_there()
            return
        new = chunk.apply(gradient, message.step)
        if self.session.asynchronous:
            chunk.count(worker)
        with self._lock:
            for index in done:
                chunk.steps[index] = message.step
                self._num_updates[index] += 1
                self._outboxes[index].put(new)

    def _check_all_there(self) -> None:
        """Whether those whose gradients are missing will send them."""
        with self._lock:
            if self._left:
                raise RefusedError(f"worker {min(self._left)} has closed its trainer, and others still step")

    def _leave(self, worker: int) -> None:
        with self._lock:
            self._left.add(worker)
        for chunk in self._chunks:
            with chunk.lock:
                if chunk.mean.is_partial:
                    raise RefusedError(f"worker {worker} closes its trainer in the middle of a step")
        self._outboxes[worker].put(None)
