"""The contract of a compressor, and error feedback.

Error feedback (Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019): a rank compresses e + g, its residual
and its gradients, and keeps what the message does not say. Over any number of steps the messages' sum and the last
residual are the gradients' sum: nothing is lost, it is late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Message = NDArray[np.uint8]

# Elements that are worked on together: they and what is derived from them stay in a core's cache.
BLOCK = 1 << 15

RESIDUAL = "residual"
RANK = "rank"  # the number of this one, by which chance differs between ranks
BucketState = dict[str, NDArray[Any]]
"""What a rank keeps of a bucket from step to step, by name: the residual, and what the compressor adds."""


class Carrier(Protocol):
    """What moves compressed gradients between ranks. Every method is collective and blocking."""

    @property
    def rank(self) -> int:
        """This process, 0 .. P - 1."""

    @property
    def size(self) -> int:
        """The number of ranks, P."""

    def allgather_bytes(self, message: Message) -> Sequence[Message]:
        """The messages of all ranks, in order of rank; their lengths may differ. They are valid until the next call."""

    def average_halves(self, values: NDArray[Any]) -> None:
        """Replace float16, or uint16 that holds bfloat16, by its mean over ranks: summed in float32, rounded once."""


class Compressor(Protocol):
    """Averages buckets over ranks by messages that are shorter than they are. Holds no state of any bucket."""

    def average(self, bucket: Floats, state: BucketState, carrier: Carrier) -> None:
        """Replace `bucket` on all ranks by the mean of what their messages say, the same bits everywhere; collective.

        `state` is this bucket's on this rank, empty in the first step, and changed in place.
        """


class Codec(Protocol):
    """Messages of buckets, which every rank gets from every other and decodes."""

    def encode(self, bucket: Floats, residual: Floats, state: BucketState) -> Message:
        """The message for `bucket` + `residual`; the latter becomes what it leaves out, the former zeros."""

    def add(self, message: Message, total: Floats, share: np.float32) -> None:
        """Add `share` of what `message` says to `total`."""


class Gathered:
    """The compressor of a codec: messages of all ranks are gathered and added up in order of rank (`Compressor`).

    Without `error_feedback` what messages leave out is forgotten.
    """

    def __init__(self, codec: Codec, *, error_feedback: bool) -> None:
        self._codec, self._error_feedback = codec, error_feedback

    def average(self, bucket: Floats, state: BucketState, carrier: Carrier) -> None:
        """One message from each rank to all others."""
        residual = residual_of(state, bucket, error_feedback=self._error_feedback)
        state.setdefault(RANK, np.array([carrier.rank]))
        messages = carrier.allgather_bytes(self._codec.encode(bucket, residual, state))
        for message in messages:
            self._codec.add(message, bucket, np.float32(1 / len(messages)))


def residual_of(state: BucketState, bucket: Floats, *, error_feedback: bool) -> Floats:
    """The residual of `bucket` in `state`, zeros where there is none yet or it is not fed back."""
    residual: Floats | None = state.get(RESIDUAL)
    if residual is None or residual.size != bucket.size:
        residual = state[RESIDUAL] = np.zeros_like(bucket)
    elif not error_feedback:
        residual[:] = 0
    return residual


def accumulate(bucket: Floats, residual: Floats) -> Iterator[slice]:
    """Move `bucket` to `residual` block by block, and yield each block's place when it is done and in the cache.

    It is added, and the bucket is zeros behind.
    """
    for begin in range(0, bucket.size, BLOCK):
        part = slice(begin, begin + BLOCK)
        np.add(residual[part], bucket[part], out=residual[part])
        bucket[part] = 0
        yield part


def accumulate_above(bucket: Floats, residual: Floats, limit: np.float32) -> NDArray[np.uint32]:
    """Move `bucket` to `residual`, and give the places where the sum is above `limit` in magnitude, in order.

    `limit` is 0 or more. What is no number is above all of them.
    """
    parts = [
        (np.flatnonzero(~(np.abs(residual[part]) <= limit)) + part.start).astype(np.uint32)
        for part in accumulate(bucket, residual)
    ]
    return np.concatenate([np.empty(0, np.uint32), *parts])
