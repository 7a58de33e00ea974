"""Gradients as numbers of 16 bits: IEEE's float16, or bfloat16, which has float32's range.

Rounded to the nearest, ties to even: each rank's gradients when they are handed over, with error feedback, and once
more the mean. A magnitude beyond float16's largest number over P is handed over as that; the rest of it is fed back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.compression.compressors import (
    BLOCK,
    BucketState,
    Carrier,
    Compressor,
    Floats,
    accumulate,
)

FLOAT16, BFLOAT16 = np.dtype(np.float16), np.dtype(np.uint16)
LARGEST = float(np.finfo(np.float16).max)
NOT_A_NUMBER = {FLOAT16: 0x7E00, BFLOAT16: 0x7FC0}
FROM_FLOAT16 = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


class Halves(Compressor):
    """Averages 16-bit numbers; `kind` is fp16 or bf16."""

    def __init__(self, kind: str, *, error_feedback: bool) -> None:
        super().__init__(error_feedback=error_feedback)
        self._kind = FLOAT16 if kind == "fp16" else BFLOAT16

    def average(self, bucket: Floats, state: BucketState, carrier: Carrier) -> None:
        """One sum of half the bytes."""
        residual = self.residual(bucket, state)
        halves = np.empty(bucket.size, self._kind)
        for part in accumulate(bucket, residual):
            values = residual[part]
            # A sum of all must not overflow either.
            limited = values if self._kind == BFLOAT16 else _limited(values, LARGEST / carrier.size)
            halves[part] = to_halves(limited, self._kind)
            values -= from_halves(halves[part])
        carrier.average_halves(halves)
        bucket[:] = from_halves(halves)


def _limited(values: Floats, largest: float) -> Floats:
    """None beyond `largest`; what is not finite becomes no number, for it must be seen."""
    if np.max(np.abs(values)) <= largest:
        return values
    return np.where(np.isfinite(values), np.clip(values, -largest, largest), np.float32(np.nan))


def to_halves(values: Floats, kind: np.dtype[Any]) -> NDArray[Any]:
    """The nearest numbers of 16 bits, ties to even; any NaN becomes the same one.

    Of float16 no magnitude may be beyond the largest. In integers, for NumPy's own cast is several times slower.
    """
    bits = values.view(np.uint32)
    if kind == BFLOAT16:
        work = bits >> 16
        work &= 1
        work += 0x7FFF
        work += bits
        work >>= 16
        rounded = work.astype(np.uint16)
    else:
        # To m 2^(e-10), of exponent e >= -14, 2^(e+13) is added: the sum's last bits are m, rounded. float16 is
        # (e + 14) 2^10 + m, and the sum's own exponent is e + 140.
        magnitude = np.abs(values)
        power = bits & 0x7F800000
        np.maximum(power, 113 << 23, out=power)
        power += 13 << 23
        magnitude += power.view(np.float32)
        work = magnitude.view(np.uint32)
        rounded = (work >> 13).astype(np.uint16)
        rounded += work.astype(np.uint16)
        rounded -= (126 << 10) % (1 << 16)
        rounded |= (bits >> 16).astype(np.uint16) & 0x8000
    not_a_number = np.isnan(values)
    if not_a_number.any():
        rounded[not_a_number] = NOT_A_NUMBER[kind]
    return rounded.view(kind)


def from_halves(halves: NDArray[Any]) -> Floats:
    """The same numbers as float32, of float16 or of bfloat16 in uint16."""
    if halves.dtype == BFLOAT16:
        bits = halves.astype(np.uint32)
        bits <<= 16
        return bits.view(np.float32)
    values = np.empty(halves.size, np.float32)
    for begin in range(0, halves.size, BLOCK):
        part = slice(begin, begin + BLOCK)
        np.take(FROM_FLOAT16, halves[part].view(np.uint16), out=values[part], mode="clip")
    return values
