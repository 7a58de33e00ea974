"""Compressors of flat float32 buckets, and error feedback.

Vocabulary: a *bucket* is a flat array that holds the same gradients in every step; a *message* is the bytes that one
rank makes of its bucket; the *residual* is what a message leaves out.

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
DRAWN = "drawn"  # messages so far, by which chance differs from step to step
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


class Compressor:
    """Averages buckets over ranks by messages that are shorter than they are. Holds no state of any bucket.

    Messages of all ranks are gathered and added up in order of rank. Without `error_feedback` what they leave out is
    forgotten.
    """

    def __init__(self, *, error_feedback: bool) -> None:
        self._error_feedback = error_feedback

    def average(self, bucket: Floats, state: BucketState, carrier: Carrier) -> None:
        """Replace `bucket` on all ranks by the mean of what their messages say, the same bits everywhere; collective.

        `state` is this bucket's on this rank, empty in the first step, and changed in place.
        """
        state.setdefault(RANK, np.array([carrier.rank]))
        messages = carrier.allgather_bytes(self.encode(bucket, self.residual(bucket, state), state))
        for message in messages:
            self.add(message, bucket, np.float32(1 / len(messages)))

    def residual(self, bucket: Floats, state: BucketState) -> Floats:
        """The residual of `bucket` in `state`, zeros where there is none yet or it is not fed back."""
        residual: Floats | None = state.get(RESIDUAL)
        if residual is None or residual.size != bucket.size:
            residual = state[RESIDUAL] = np.zeros_like(bucket)
        elif not self._error_feedback:
            residual[:] = 0
        return residual

    def encode(self, bucket: Floats, residual: Floats, state: BucketState) -> Message:
        """The message for `bucket` + `residual`; the latter becomes what it leaves out, the former zeros."""
        raise NotImplementedError

    def add(self, message: Message, total: Floats, share: np.float32) -> None:
        """Add `share` of what `message` says to `total`."""
        raise NotImplementedError


def accumulate(bucket: Floats, residual: Floats) -> Iterator[slice]:
    """Move `bucket` to `residual` block by block, and yield each block's place when it is done and in the cache.

    It is added, and the bucket is zeros behind.
    """
    for begin in range(0, bucket.size, BLOCK):
        part = slice(begin, begin + BLOCK)
        np.add(residual[part], bucket[part], out=residual[part])
        bucket[part] = 0
        yield part


def _accumulate_above(bucket: Floats, residual: Floats, limit: np.float32) -> NDArray[np.uint32]:
    """Move `bucket` to `residual`, and give the places where the sum is above `limit` in magnitude, in order.

    `limit` is 0 or more. What is no number is above all of them.
    """
    parts = [
        (np.flatnonzero(~(np.abs(residual[part]) <= limit)) + part.start).astype(np.uint32)
        for part in accumulate(bucket, residual)
    ]
    return np.concatenate([np.empty(0, np.uint32), *parts])


class TopK(Compressor):
    """The given share of a bucket's elements that are largest, at least one, and their places.

    Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017 (arXiv 1704.05021); exact
    selection per bucket, where Lin et al. (Deep Gradient Compression, arXiv 1712.01887) select by a sample. A message
    is k places (uint32), then k values (float32): 8 bytes each.
    """

    SAMPLE = 1 << 14  # elements by which a limit that few elements pass is found
    MARGIN = 1.5  # of the share that is to pass the limit: so many that k of them are there almost always

    def __init__(self, share: float, *, error_feedback: bool) -> None:
        super().__init__(error_feedback=error_feedback)
        self._share = share

    def encode(self, bucket: Floats, residual: Floats, state: BucketState) -> Message:  # noqa: ARG002
        """The k largest; among equals any, the same ones whenever the elements are the same."""
        count = max(1, round(self._share * bucket.size)) if bucket.size else 0
        places = _accumulate_above(bucket, residual, self._limit(bucket, residual))
        if places.size < count:  # the sample was no good one
            places = np.arange(bucket.size, dtype=np.uint32)
        if places.size > count:
            found = np.abs(residual[places])
            places = places[np.argpartition(found, found.size - count)[found.size - count :]]
        message = np.empty(8 * count, np.uint8)
        message[: 4 * count].view(np.uint32)[:] = places
        message[4 * count :].view(np.float32)[:] = residual[places]
        residual[places] = 0
        return message

    def add(self, message: Message, total: Floats, share: np.float32) -> None:
        """No place comes twice."""
        half = message.size // 2
        total[message[:half].view(np.uint32)] += share * message[half:].view(np.float32)

    def _limit(self, bucket: Floats, residual: Floats) -> np.float32:
        """A number that somewhat more than k elements are above, by a sample; 0 where a sample is not worth it."""
        stride = bucket.size // self.SAMPLE
        wanted = int(self.MARGIN * self._share * self.SAMPLE) + 16
        if stride < 2 or wanted >= self.SAMPLE:
            return np.float32(0)
        stride += 1 - stride % 2  # odd: not the same channel in every row
        sample = np.abs(bucket[::stride] + residual[::stride])
        kept = sample.size - int(wanted * sample.size / self.SAMPLE)
        return np.float32(np.partition(sample, kept)[kept])


class Threshold(Compressor):
    """An element whose magnitude passes tau is sent as tau with its sign; what is beyond comes later.

    Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", Interspeech 2015. A message is one
    uint32 per element: its place, and its sign in the highest bit.
    """

    SIGN = np.uint32(1 << 31)  # of a word whose other bits are a place
    NOT_FINITE = np.uint32(2**32 - 1)  # no place of a bucket

    def __init__(self, tau: float, *, error_feedback: bool) -> None:
        super().__init__(error_feedback=error_feedback)
        self._tau = np.float32(tau)

    def encode(self, bucket: Floats, residual: Floats, state: BucketState) -> Message:  # noqa: ARG002
        """In order of place; last comes `NOT_FINITE` where an element is not, which must be seen."""
        words = _accumulate_above(bucket, residual, self._tau)
        found = residual[words]
        residual[words] = found - np.copysign(self._tau, found)
        words |= found.view(np.uint32) & self.SIGN
        if not np.isfinite(found).all():
            words = np.append(words, self.NOT_FINITE)
        return words.view(np.uint8)

    def add(self, message: Message, total: Floats, share: np.float32) -> None:
        """No place comes twice."""
        words = message.view(np.uint32)
        if words.size and words[-1] == self.NOT_FINITE:
            words = words[:-1]
            total += np.float32(np.nan)
        step = share * self._tau
        total[words & ~self.SIGN] += np.where(words & self.SIGN, -step, step)


class Qsgd(Compressor):
    """Each element as one of s levels on either side of 0 of its chunk's largest magnitude, rounded by chance.

    Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
    Encoding", NeurIPS 2017 (arXiv 1610.02132): chunks ("buckets" there) of 512 elements, scaled by the largest
    magnitude as in its experiments. The mean of what is sent is the gradient, so there is no error feedback. Codes have
    a fixed width of 2, 4 or 8 bits in place of Elias codes. A message is the scales (float32), then the codes: level +
    s, low bits first. Chance differs by rank and message.
    """

    CHUNK = 512  # elements with one scale
    MOST_LEVELS = 127

    def __init__(self, levels: int) -> None:
        super().__init__(error_feedback=False)
        self._levels = levels
        self._bits = 2 if levels == 1 else 4 if levels <= 7 else 8

    def encode(self, bucket: Floats, residual: Floats, state: BucketState) -> Message:  # noqa: ARG002
        """The residual stays as it is: what is rounded away is rounded up elsewhere."""
        drawn = state.setdefault(DRAWN, np.zeros(1, np.int64))
        random = np.random.SFC64((int(state[RANK][0]), int(drawn[0])))
        drawn[0] += 1
        chunk = self.CHUNK
        num_chunks = -(-bucket.size // chunk)
        scales = np.empty(num_chunks, np.float32)
        codes = np.empty(num_chunks * chunk, np.uint8)
        for begin in range(0, num_chunks * chunk, BLOCK):
            values = np.zeros(min(BLOCK, num_chunks * chunk - begin), np.float32)
            own = bucket[begin : begin + BLOCK]
            values[: own.size] = own
            rows = values.reshape(-1, chunk)
            scale = np.max(np.abs(rows), axis=1)
            scales[begin // chunk : begin // chunk + scale.size] = scale
            # A chunk of zeros, and one that is not finite, which its scale says, has level 0 everywhere.
            usable = np.isfinite(scale) & (scale > 0)
            if not usable.all():
                rows[~usable] = 0
            factor = np.float32(self._levels) / np.where(usable, scale, np.float32(1))
            rows *= factor[:, None]
            rows += np.float32(self._levels)
            values += _chance(random, values.size)
            # What is above 0 is cut to the number below it.
            codes[begin : begin + values.size] = np.minimum(values.astype(np.uint8), 2 * self._levels)
        bucket[:] = 0
        return np.concatenate([scales.view(np.uint8), _packed(codes, self._bits)])

    def add(self, message: Message, total: Floats, share: np.float32) -> None:
        """Level x scale / s."""
        chunk = self.CHUNK
        num_chunks = -(-total.size // chunk)
        scales = message[: 4 * num_chunks].view(np.float32) * (share / np.float32(self._levels))
        codes = _unpacked(message[4 * num_chunks :], self._bits)
        for begin in range(0, total.size, BLOCK):
            levels = codes[begin : begin + BLOCK].astype(np.float32) - np.float32(self._levels)
            rows = levels.reshape(-1, chunk) * scales[begin // chunk : (begin + levels.size) // chunk, None]
            own = total[begin : begin + BLOCK]
            own += rows.reshape(-1)[: own.size]


def _chance(random: np.random.SFC64, count: int) -> Floats:
    """Numbers between 0 and 1 in steps of 2^-16, of which 0 and 1 are half a step away: so the mean is exact."""
    drawn = random.random_raw(-(-count // 4)).view(np.uint16)[:count]
    return (drawn + np.float32(0.5)) * np.float32(2**-16)


def _packed(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Several codes per byte, the first in the lowest bits; there is a multiple of so many."""
    packed = codes[:: 8 // bits].copy()
    for place in range(1, 8 // bits):
        packed |= codes[place :: 8 // bits] << (place * bits)
    return packed


def _unpacked(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    codes = np.empty(packed.size * (8 // bits), np.uint8)
    for place in range(8 // bits):
        codes[place :: 8 // bits] = packed >> (place * bits) & ((1 << bits) - 1)
    return codes
