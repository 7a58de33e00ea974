"""The messages between workers and servers, and which server holds which weights.

No pickle: a message is a header of four whole numbers and the float32 elements of a shard, or a line of JSON. All go
through `Mailbox`, over a communicator of their own; one worker's messages to a server are taken in their order.

The trainable weights of all objectives lie behind each other, in canonical order, in one flat space of N elements.
Server s of S holds elements [N s / S, N (s + 1) / S), its shard.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.mpi_ps.watch import LOOK_SECONDS, Watch
from dlscale.models.workload import Weights

Floats = NDArray[np.float32]

BYTES_PER_ELEMENT = 4  # float32
HEADER_BYTES = 32  # four int64: kind, session, step, count
TAG = 1

NUM_YIELDS = 200  # looks that only let others have the core, before the first sleep
POLL_SECONDS = 0.0002


class Kind(IntEnum):
    """What a message is for."""

    OPEN = 0  # worker: a session begins; JSON
    LOAD = 1  # worker 0: the first weights
    PUSH = 2  # worker: gradients, or whatever the algorithm sends
    FETCH = 3  # worker: wants the weights
    REPORT = 4  # worker: wants the counts, as JSON
    END = 5  # worker: leaves a session
    CLOSE = 6  # worker: leaves for good
    VALUES = 7  # server: elements of its shard
    COUNTS = 8  # server: JSON
    LOOK = 9  # worker: wants the weights, but not to train on them
    KEPT = 10  # worker: wants the weights and all that the algorithm keeps beside them


class Message:
    """A message and the memory that it is sent from or received into."""

    def __init__(self, num_bytes: int) -> None:
        self.memory = np.zeros(HEADER_BYTES + num_bytes, dtype=np.uint8)
        self._header = self.memory[:HEADER_BYTES].view(np.int64)

    @classmethod
    def of_floats(cls, count: int) -> Message:
        """Room for so many elements."""
        return cls(BYTES_PER_ELEMENT * count)

    @classmethod
    def of_text(cls, text: str) -> Message:
        raw = text.encode()
        message = cls(len(raw))
        message.memory[HEADER_BYTES:] = np.frombuffer(raw, np.uint8)
        return message

    def address(self, kind: Kind, *, session: int, step: int = 0, count: int = 0) -> Message:
        """Fill in the header; returns the message."""
        self._header[:] = kind, session, step, count
        return self

    @property
    def kind(self) -> Kind:
        return Kind(int(self._header[0]))

    @property
    def session(self) -> int:
        """The number of the trainer that it belongs to, the same on all ranks."""
        return int(self._header[1])

    @property
    def step(self) -> int:
        """Updates that the weights had taken up, those sent by a server or those that a push was computed with."""
        return int(self._header[2])

    @property
    def count(self) -> int:
        """Local batches in a push."""
        return int(self._header[3])

    @property
    def values(self) -> Floats:
        """The elements."""
        return self.memory[HEADER_BYTES:].view(np.float32)

    @property
    def text(self) -> str:
        return self.memory[HEADER_BYTES:].tobytes().decode()


class Mailbox:
    """Sends and receives messages over mpi4py, and never waits inside MPI, which keeps a core busy.

    What is waited for from a rank whose process has ended, as `watch` sees it, raises LostRankError.
    """

    def __init__(self, communicator: Any, watch: Watch | None = None) -> None:
        from mpi4py import MPI

        self.communicator = communicator
        self.watch = watch or Watch({})
        self._any = MPI.ANY_SOURCE
        self._new_status = MPI.Status
        self._byte = MPI.BYTE
        self._failure = MPI.Exception

    def send(self, message: Message, to: int) -> Any:
        """Begin to send; the message may be changed once the request that this returns is done."""
        return self.communicator.Isend([message.memory, self._byte], to, TAG)

    def wait(self, request: Any, rank: int) -> None:
        """Return when a message to or from that rank has been moved. Raises LostRankError."""
        patience = Patience()
        while not self.is_moved(request, rank):
            patience.wait()

    def is_moved(self, request: Any, *ranks: int) -> bool:
        """Whether a message between this rank and others has been moved. Raises LostRankError where it cannot be.

        MPI fails, with an error of its own, where it was reading the memory of a process that has ended.
        """
        try:
            done = bool(request.Test())
        except self._failure:
            self._check_alive(*ranks, patience_seconds=2 * LOOK_SECONDS)
            raise
        if not done:
            self._check_alive(*ranks)
        return done

    def _check_alive(self, *ranks: int, patience_seconds: float = 0.0) -> None:
        """Raises LostRankError if the process of one has ended, or is seen to have before long."""
        end = time.monotonic() + patience_seconds
        while True:
            for rank in ranks:
                if self.watch.is_gone(rank):
                    raise LostRankError(rank)
            if time.monotonic() >= end:
                return
            time.sleep(POLL_SECONDS)

    def receive(self, source: int, into: Message | None = None) -> Message:
        """Return when the next message of that rank is here, in `into` or in memory of its own.

        Raises LostRankError.
        """
        patience = Patience()
        while (found := self.poll(into, source=source)) is None:
            if self.watch.is_gone(source):
                raise LostRankError(source)
            patience.wait()
        return found[1]

    def poll(self, into: Message | None = None, *, source: int | None = None) -> tuple[int, Message] | None:
        """(rank, message) of the next message, if any has come; `into` where it fits exactly."""
        status = self._new_status()
        matched = self.communicator.Improbe(
            source=self._any if source is None else source, tag=TAG, status=status
        )
        if matched is None:
            return None
        num_bytes = status.Get_count(self._byte)
        if into is None or into.memory.nbytes != num_bytes:
            into = Message(num_bytes - HEADER_BYTES)
        try:
            request = matched.Irecv([into.memory, self._byte])
        except self._failure:
            self._check_alive(status.Get_source(), patience_seconds=2 * LOOK_SECONDS)
            raise
        self.wait(request, status.Get_source())
        return status.Get_source(), into


class LostRankError(Exception):
    """The process of a rank has ended."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.rank = rank


class Patience:
    """Waits a little longer each time it is asked: at first only lets another process have the core."""

    def __init__(self) -> None:
        self._num_looks = 0

    def wait(self) -> None:
        self._num_looks += 1
        if self._num_looks < NUM_YIELDS:
            os.sched_yield()
        else:
            time.sleep(POLL_SECONDS)


def shard_bounds(num_elements: int, *, num_servers: int) -> list[tuple[int, int]]:
    """First and last + 1 element of each server's shard. Raises UsageError where one would be empty."""
    if num_servers > num_elements:
        raise UsageError(
            f"backend mpi_ps: {num_servers} servers for {num_elements} weights; give at most as many servers as weights"
        )
    return [
        (num_elements * server // num_servers, num_elements * (server + 1) // num_servers)
        for server in range(num_servers)
    ]


class FlatLayout:
    """Where a replica's weights lie in the flat space. Raises UsageError for any that are not float32."""

    def __init__(self, weights: Weights) -> None:
        for weight in weights:
            if weight.dtype != np.float32:
                raise UsageError(
                    f"backend mpi_ps holds float32 weights, and one is {weight.dtype}; choose another backend"
                )
        self._shapes = [weight.shape for weight in weights]
        self._ends = np.cumsum([weight.size for weight in weights]).tolist()

    @property
    def num_elements(self) -> int:
        """Elements of all weights together."""
        return int(self._ends[-1])

    def pack(self, tensors: Sequence[NDArray[Any]], into: Floats) -> None:
        """Write the tensors behind each other."""
        for end, tensor in zip(self._ends, tensors, strict=True):
            into[end - tensor.size : end] = tensor.reshape(-1)

    def unpack(self, flat: Floats) -> Weights:
        """The tensors, which share memory with `flat`."""
        begins = [0, *self._ends]
        return [
            flat[begin:end].reshape(shape)
            for begin, end, shape in zip(begins, self._ends, self._shapes, strict=False)
        ]
