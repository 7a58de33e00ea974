"""The messages between workers and servers, the checks of what comes in, and which server holds which weights.

No pickle: JSON once, then raw floats. A worker opens a stream per trainer and server. Its first message is a `Hello`
as JSON. All others, both ways, are a header and the float32 elements of one chunk.

The trainable weights of all objectives lie behind each other in one flat space, counted in elements: sections in
order (an objective's parameters that one group of its optimizer updates), each one's parameters as registered.
Servers hold shards of it, which are cut into chunks; who holds what is arithmetic only.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from dlscale.base.strings import Text

BYTES_PER_ELEMENT = 4  # float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """`count` elements of a shard, behind those of the regions before; `optimizer` is an index."""

    count: int
    optimizer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Elements [offset, offset + count) of a shard."""

    offset: int
    count: int
    optimizer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerShard:
    """Elements [start, start + the sum over regions) of the flat space."""

    start: int
    regions: tuple[Region, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Elements [start, stop) of a parameter's memory."""

    parameter: int
    start: int
    stop: int


def shards(section_sizes: Sequence[int], *, num_servers: int) -> list[ServerShard]:
    """One shard per server, of sections with `section_sizes` elements; each section has its own optimizer."""
    total = sum(section_sizes)
    ends = list(accumulate(section_sizes))
    of_servers = []
    for server in range(num_servers):
        start, stop = total * server // num_servers, total * (server + 1) // num_servers
        overlaps = [
            min(stop, end) - max(start, end - size) for end, size in zip(ends, section_sizes, strict=True)
        ]
        regions = tuple(
            Region(count=count, optimizer=index) for index, count in enumerate(overlaps) if count > 0
        )
        of_servers.append(ServerShard(start=start, regions=regions))
    return of_servers


def chunks(regions: Sequence[Region], *, chunk_elements: int) -> list[Chunk]:
    """The chunks of a shard, in order, all of `chunk_elements`; only the last of each region may be smaller."""
    cut = []
    begin = 0
    for region in regions:
        end = begin + region.count
        cut += [
            Chunk(offset=offset, count=min(chunk_elements, end - offset), optimizer=region.optimizer)
            for offset in range(begin, end, chunk_elements)
        ]
        begin = end
    return cut


def pieces(parameter_sizes: Sequence[int], start: int, stop: int) -> Iterator[Piece]:
    """The pieces of parameters, in flat order, that make up [start, stop) of the flat space; none are empty."""
    ends = list(accumulate(parameter_sizes))
    index = bisect_right(ends, start)
    while start < stop:
        begin = ends[index] - parameter_sizes[index]
        end = min(stop, ends[index])
        if end > start:
            yield Piece(parameter=index, start=start - begin, stop=end - begin)
        start = end
        index += 1


HEADER = struct.Struct(
    "<IIQQQ"
)  # kind, chunk, step, offset in the shard, count; 32 bytes keep floats aligned
WEIGHTS, GRADIENT, BYE, LOOK = range(4)  # LOOK: a worker asks for the weights of now, with no elements

# torch's optimizers that treat every element alike, so that tensors may be cut anywhere.
ELEMENTWISE = (
    "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax",
)  # fmt: skip
MAX_HELLO_BYTES = 1 << 20

Natural = Annotated[int, Field(ge=0, lt=1 << 63, strict=True)]
Positive = Annotated[int, Field(ge=1, lt=1 << 63, strict=True)]
Hyperparameter = StrictBool | int | float | str | None | tuple[int | float, ...]


class RefusedError(Exception):
    """A peer's message is refused; its call ends with this text."""


class _Checked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OptimizerSpec(_Checked):
    """A class of torch.optim and the arguments that it is built with."""

    name: Literal["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax"]
    hyperparameters: dict[Text, Hyperparameter]


class Session(_Checked):
    """A trainer's description for the servers; the same from all workers."""

    number: Natural
    num_workers: Positive
    asynchronous: StrictBool
    chunk_elements: Positive
    regions: tuple[tuple[Positive, Natural], ...]  # (elements, optimizer)
    optimizers: tuple[OptimizerSpec, ...]

    def layout(self) -> list[Region]:
        """The regions of the server's shard."""
        return [Region(count=count, optimizer=optimizer) for count, optimizer in self.regions]


class Hello(_Checked):
    """A stream's first message."""

    worker: Natural
    session: Session


@dataclass(frozen=True, slots=True)
class Message:
    """One chunk's elements, in the memory that it came in; a BYE and a LOOK have none."""

    kind: int
    chunk: int
    step: int
    values: NDArray[np.float32]


def read_hello(raw: bytes, *, num_workers: int, chunk_elements: int) -> Hello:
    """Raises RefusedError unless it fits this launch."""
    try:
        hello = Hello.model_validate_json(raw)
    except ValidationError as error:
        raise RefusedError(f"the first message is no Hello: {error.error_count()} errors in it") from None
    session = hello.session
    if session.num_workers != num_workers or hello.worker >= num_workers:
        raise RefusedError(f"worker {hello.worker} of {session.num_workers}, but there are {num_workers}")
    if session.chunk_elements != chunk_elements:
        raise RefusedError(f"chunks of {session.chunk_elements} elements; the servers' are {chunk_elements}")
    if not session.regions or any(optimizer >= len(session.optimizers) for _, optimizer in session.regions):
        raise RefusedError("there are no weights, or some have no optimizer")
    return hello


def pack(kind: int, index: int, step: int, chunk: Chunk, parts: Iterable[NDArray[np.float32]]) -> bytes:
    """A message with the chunk's elements, which are copied once; `parts` are C-contiguous, in order."""
    header = HEADER.pack(kind, index, step, chunk.offset, chunk.count)
    return b"".join((header, *(part.data for part in parts)))


def pack_bye() -> bytes:
    """A worker's last message before it ends its stream."""
    return HEADER.pack(BYE, 0, 0, 0, 0)


def pack_look(index: int, step: int) -> bytes:
    """A worker's question for a chunk's weights of now, between its steps."""
    return HEADER.pack(LOOK, index, step, 0, 0)


def pack_counts(num_applied: int, staleness: Mapping[int, int]) -> bytes:
    """What a server says of a session: local batches that it took up, and how many gradients had missed how much."""
    return json.dumps(
        {"applied": num_applied, "staleness": {str(k): n for k, n in staleness.items()}}
    ).encode()


def unpack_counts(raw: bytes) -> tuple[int, dict[int, int]]:
    """(local batches, {updates: gradients})."""
    counts = json.loads(raw)
    return int(counts["applied"]), {int(steps): int(number) for steps, number in counts["staleness"].items()}


def question(session: Session) -> bytes:
    """What asks a server for a session's counts, or for all that its optimizers keep."""
    return session.number.to_bytes(8, "little")


SLOT = struct.Struct("<IBB26s")  # chunk, length of the name, number of axes, name: as much as a HEADER


def pack_slot(index: int, name: str, values: NDArray[np.float32]) -> bytes:
    """What an optimizer keeps of a chunk by that name: an element per weight, or a number."""
    return b"".join((SLOT.pack(index, len(name), values.ndim, name.encode()), values.data))


def unpack_slot(raw: bytes) -> tuple[int, str, NDArray[np.float32]]:
    """(chunk, name, values)."""
    index, length, num_axes, name = SLOT.unpack_from(raw)
    values = np.frombuffer(raw, dtype=np.float32, offset=SLOT.size)
    return index, name[:length].decode(), values if num_axes else values.reshape(())


def unpack(raw: bytes, chunks: list[Chunk]) -> Message:
    """The message, of which `values` is a view. Raises RefusedError unless it is one of these chunks, whole."""
    if len(raw) < HEADER.size:
        raise RefusedError(f"a message has {len(raw)} bytes; a header alone has {HEADER.size}")
    kind, index, step, offset, count = HEADER.unpack_from(raw)
    if kind == BYE:
        return Message(kind, 0, 0, np.empty(0, dtype=np.float32))
    if kind not in (WEIGHTS, GRADIENT, LOOK) or index >= len(chunks):
        raise RefusedError(f"a message of kind {kind} for chunk {index}; there are {len(chunks)} chunks")
    if kind == LOOK:
        if len(raw) > HEADER.size:
            raise RefusedError(
                f"a worker asks for chunk {index} in {len(raw)} bytes; a question has {HEADER.size}"
            )
        return Message(kind, index, step, np.empty(0, dtype=np.float32))
    chunk = chunks[index]
    num_bytes = len(raw) - HEADER.size
    if (offset, count) != (chunk.offset, chunk.count) or num_bytes != chunk.count * BYTES_PER_ELEMENT:
        raise RefusedError(
            f"chunk {index} came as {count} elements at {offset} in {num_bytes} bytes; "
            f"it has {chunk.count} at {chunk.offset}"
        )
    return Message(kind, index, step, np.frombuffer(raw, dtype=np.float32, offset=HEADER.size))
