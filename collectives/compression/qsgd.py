"""QSGD: each element as one of s levels of its chunk's largest magnitude, rounded up or down by chance.

Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding", NeurIPS 2017 (arXiv 1610.02132): chunks ("buckets" there) of 512 elements, scaled by the largest magnitude as
in its experiments. The mean of what is sent is the gradient, so there is no error feedback. Codes have a fixed width of
2, 4 or 8 bits in place of Elias codes. A message is the scales (float32), then the codes: level + s, low bits first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.compression.compressor import BLOCK, RANK, BucketState, Floats, Message

CHUNK = 512  # elements with one scale
MOST_LEVELS = 127
DRAWN = "drawn"  # messages so far, by which chance differs from step to step


class Qsgd:
    """Messages of `levels` levels on either side of 0 (`Codec`). Chance differs by rank and message."""

    def __init__(self, levels: int) -> None:
        self._levels = levels
        self._bits = 2 if levels == 1 else 4 if levels <= 7 else 8

    def encode(self, bucket: Floats, residual: Floats, state: BucketState) -> Message:  # noqa: ARG002
        """The residual stays as it is: what is rounded away is rounded up elsewhere."""
        drawn = state.setdefault(DRAWN, np.zeros(1, np.int64))
        random = np.random.SFC64((int(state[RANK][0]), int(drawn[0])))
        drawn[0] += 1
        num_chunks = -(-bucket.size // CHUNK)
        scales = np.empty(num_chunks, np.float32)
        codes = np.empty(num_chunks * CHUNK, np.uint8)
        for begin in range(0, num_chunks * CHUNK, BLOCK):
            values = np.zeros(min(BLOCK, num_chunks * CHUNK - begin), np.float32)
            own = bucket[begin : begin + BLOCK]
            values[: own.size] = own
            rows = values.reshape(-1, CHUNK)
            scale = np.max(np.abs(rows), axis=1)
            scales[begin // CHUNK : begin // CHUNK + scale.size] = scale
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
        num_chunks = -(-total.size // CHUNK)
        scales = message[: 4 * num_chunks].view(np.float32) * (share / np.float32(self._levels))
        codes = _unpacked(message[4 * num_chunks :], self._bits)
        for begin in range(0, total.size, BLOCK):
            levels = codes[begin : begin + BLOCK].astype(np.float32) - np.float32(self._levels)
            rows = levels.reshape(-1, CHUNK) * scales[begin // CHUNK : (begin + levels.size) // CHUNK, None]
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
