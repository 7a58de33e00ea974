"""The messages between workers and servers, who sends to whom, and which server holds which weights.

No pickle: a message is a header of five whole numbers and the float32 elements of a shard, or a line of JSON. One
rank's messages to another are taken in their order.

The trainable weights of all objectives lie behind each other, in canonical order, in one flat space of N elements.
Server s of S holds elements [N s / S, N (s + 1) / S), its shard.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from dlscale.base.errors import UsageError
from dlscale.collectives.algorithms.downpour import NUM_KEPT
from dlscale.models.workload import Weights

Floats = NDArray[np.float32]

BYTES_PER_ELEMENT = 4  # float32
HEADER_BYTES = 40  # five int64: kind, session, step, count, bytes of the body


class Kind(IntEnum):
    """What a message is for."""

    OPEN = 0  # worker: a session begins; Rules as JSON
    LOAD = 1  # worker 0: the first weights
    PUSH = 2  # worker: gradients, or what else the algorithm sends
    FETCH = 3  # worker: wants the weights
    KEPT = 4  # worker: wants the weights and all that the algorithm keeps beside them
    REPORT = 5  # worker: wants the counts
    END = 6  # worker: leaves a session
    CLOSE = 7  # worker: leaves for good
    VALUES = 8  # server: elements of its shard
    COUNTS = 9  # server: JSON


class Rules(BaseModel):
    """How a server trains its shard of a session, as the workers tell it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    algorithm: Literal["sync", "asynchronous", "downpour", "easgd"]
    num_elements: int = Field(ge=1, lt=1 << 60)
    optimizer: str = Field("sgd", pattern=f"^({'|'.join(NUM_KEPT)})$")  # of downpour
    rate: float = 0.0
    momentum: float = 0.0
    share: float = 0.0  # of easgd: the part of the distance that an exchange moves worker and centre by


class Message:
    """A message in memory: the header and the body behind it."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.memory = memory
        self._header = memory[:HEADER_BYTES].view(np.int64)

    @classmethod
    def of(
        cls, kind: Kind, session: int = -1, *, step: int = 0, count: int = 0, body: Floats | str = ""
    ) -> Message:
        """A message with a copy of the body."""
        raw = np.frombuffer(body.encode(), np.uint8) if isinstance(body, str) else body.view(np.uint8)
        message = cls(np.empty(HEADER_BYTES + raw.size, np.uint8))
        message._header[:] = kind, session, step, count, raw.size
        message.memory[HEADER_BYTES:] = raw
        return message

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
    def num_bytes(self) -> int:
        """Bytes of the body, as the header has them."""
        return int(self._header[4])

    @property
    def values(self) -> Floats:
        """The elements."""
        return self.memory[HEADER_BYTES:].view(np.float32)

    @property
    def text(self) -> str:
        return self.memory[HEADER_BYTES:].tobytes().decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Workers are ranks 0 .. P - 1, servers P .. P + S - 1. `num_masters` 0: workers send to the servers themselves.

    With M masters the first server holds the weights, as the super-master, and master m, one of the others, relays for
    workers P m / M .. P (m + 1) / M - 1, as those of MPI-Learn do (D. Anderson, J.-R. Vlimant, M. Spiropulu, *An
    MPI-Based Python Framework for Distributed Training with Keras*, arXiv:1712.05878).
    """

    num_workers: int
    num_servers: int
    num_masters: int = 0

    def is_master(self, rank: int) -> bool:
        """Whether that rank relays."""
        return self.num_masters > 0 and rank > self.num_workers

    def parents(self, rank: int) -> list[int]:
        """Ranks that a worker or a master sends to, in the order of the shards that they hold."""
        servers = range(self.num_workers, self.num_workers + self.num_servers)
        if not self.num_masters:
            return list(servers)
        if self.is_master(rank):
            return [self.num_workers]
        return [master for master in servers[1:] if rank in self.children(master)]

    def children(self, rank: int) -> set[int]:
        """Ranks that this server takes messages from."""
        if not self.num_masters:
            return set(range(self.num_workers))
        place = rank - self.num_workers - 1
        if place < 0:
            return {rank + 1 + master for master in range(self.num_masters)}
        ends = [self.num_workers * end // self.num_masters for end in (place, place + 1)]
        return set(range(*ends))

    def name(self, rank: int) -> str:
        """What errors call it."""
        if rank < self.num_workers:
            return f"worker {rank}"
        if self.is_master(rank):
            return f"master {rank - self.num_workers - 1}"
        return "the super-master" if self.num_masters else f"server {rank - self.num_workers}"


class RefusedError(Exception):
    """A peer's message is refused, for this reason."""


class LostPeerError(RuntimeError):
    """A rank that something is waited for from has gone; the text names it."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(text)
        self.rank = rank


class Transport(Protocol):
    """What carries messages between ranks. No method keeps a core busy while it waits."""

    def send(self, message: Message, to: int) -> None:
        """Begin to send; the message must not be changed afterwards."""

    def flush(self, ranks: Collection[int]) -> None:
        """Return when all that was sent to these ranks has left this one. Raises LostPeerError."""

    def receive(self, source: int) -> Message:
        """Return when the next message of that rank is here. Raises LostPeerError."""

    def next(self) -> tuple[int, Message] | None:
        """On a server: (rank, message) of the next message; None if none has come after a moment."""

    def gone(self) -> dict[int, str]:
        """{rank: error}: ranks that have gone without leave."""

    def close(self, failure: str = "") -> None:
        """Let go of the others; with a `failure` they are told why, where the transport can."""


def shard_bounds(num_elements: int, *, num_servers: int) -> list[tuple[int, int]]:
    """First and last + 1 element of each server's shard. Raises UsageError where one would be empty."""
    if num_servers > num_elements:
        raise UsageError(
            f"{num_servers} servers for {num_elements} weights; give at most as many servers as weights"
        )
    ends = [num_elements * server // num_servers for server in range(num_servers + 1)]
    return list(pairwise(ends))


class FlatLayout:
    """Where a replica's weights lie in the flat space. Raises UsageError for any that are not float32."""

    def __init__(self, weights: Weights) -> None:
        if kinds := {str(weight.dtype) for weight in weights} - {"float32"}:
            raise UsageError(
                f"parameter servers hold float32 weights, and some are {', '.join(sorted(kinds))}; "
                "choose another backend"
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
        parts = np.split(flat, self._ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]
