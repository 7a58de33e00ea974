"""Gradients as numbers of 16 bits: IEEE's float16, or bfloat16, which has float32's range.

Rounded to the nearest, ties to even: each rank's gradients when they are handed over, with error feedback, and once
more the mean. A magnitude beyond float16's largest number over P is handed over as that; the rest of it is fed back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.compression.compressor import BucketState, Carrier, Floats, accumulate, residual_of

LARGEST = np.finfo(np.float16).max


class Halves:
    """Averages 16-bit numbers (`Compressor`); `kind` is fp16 or bf16."""

    def __init__(self, kind: str, *, error_feedback: bool) -> None:
        self._bfloat16 = kind == "bf16"
        self._error_feedback = error_feedback

    def average(self, bucket: Floats, state: BucketState, carrier: Carrier) -> None:
        """One sum of half the bytes."""
        residual = residual_of(state, bucket, error_feedback=self._error_feedback)
        if self._bfloat16:
            rounded = round_bfloat16(bucket, residual)
            carrier.average_halves(rounded)
            bucket[:] = from_bfloat16(rounded)
            return
        # A sum of all must not overflow either.
        halves = round_float16(bucket, residual, largest=float(LARGEST) / carrier.size)
        carrier.average_halves(halves)
        bucket[:] = halves


def round_float16(bucket: Floats, residual: Floats, *, largest: float) -> NDArray[np.float16]:
    """float16 of `residual` + `bucket`, none beyond `largest`; `residual` becomes what is left.

    What is not finite is no number, for it must be seen.
    """
    halves = np.empty(bucket.size, np.float16)
    for part in accumulate(bucket, residual):
        values = residual[part]
        limited = values
        if not np.max(np.abs(values)) <= largest:
            limited = np.where(np.isfinite(values), np.clip(values, -largest, largest), np.float32(np.nan))
        halves[part] = limited
        values -= halves[part]
    return halves


def round_bfloat16(bucket: Floats, residual: Floats) -> NDArray[np.uint16]:
    """bfloat16 of `residual` + `bucket`; `residual` becomes what rounding takes away."""
    halves = np.empty(bucket.size, np.uint16)
    for part in accumulate(bucket, residual):
        halves[part] = to_bfloat16(residual[part])
        residual[part] -= from_bfloat16(halves[part])
    return halves


def to_bfloat16(values: Floats) -> NDArray[np.uint16]:
    """The upper halves of the nearest bfloat16 numbers, ties to even; any NaN becomes the same one."""
    bits = values.view(np.uint32)
    rounded = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)
    not_a_number = np.isnan(values)
    if not_a_number.any():
        rounded[not_a_number] = 0x7FC0
    return rounded


def from_bfloat16(halves: NDArray[np.uint16]) -> Floats:
    """The same numbers as float32."""
    bits = halves.astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)
