"""A trainer as a server sees it: who takes part, what has come from whom, and what goes to whom.

Synchronous, a chunk is updated by the thread that receives the last worker's gradient of it, and the same message with
the new weights goes to all. Asynchronous, each gradient of a chunk is an update, one at a time, and its worker alone
gets the new weights: atomic are chunks, not steps.
"""

from __future__ import annotations

from queue import SimpleQueue
from threading import Lock

from dlscale.collectives.grpc_ps._torch_shard import ServedChunk, served_chunks
from dlscale.collectives.grpc_ps.messages import (
    BYE,
    WEIGHTS,
    Message,
    RefusedError,
    Session,
    unpack,
)

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
        """What a worker sent; False if it takes leave. Raises RefusedError for what it may not send now."""
        message = unpack(raw, self._layout)
        if message.kind == BYE:
            self._leave(worker)
            return False
        chunk = self._chunks[message.chunk]
        with chunk.lock:
            if message.kind == WEIGHTS:
                self._load(worker, message, raw, chunk)
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
