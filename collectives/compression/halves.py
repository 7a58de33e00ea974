"""Gradients as numbers of 16 bits: IEEE's float16, or bfloat16, which has float32's range.

Rounded to the nearest, ties to even: each rank's gradients when they are handed over, with error feedback, and once
more the mean. A magnitude beyond float16's largest number over P is handed over as that; the rest of it is fed back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.compression.compressor import BucketState, Floats, accumulate, residual_of
from dlscale.collectives.compression.links import Links

LARGEST = np.finfo(np.float16).max


class Halves:
    """Averages 16-bit numbers (`Compressor`); `kind` is fp16 or bf16."""

    def __init__(self, kind: str, *, error_feedback: bool) -> None:
        self._bfloat16 = kind == "bf16"
        self._error_feedback = error_feedback

    def average(self, bucket: Floats, state: BucketState, links: Links) -> None:
        """One sum of half the bytes."""
        residual = residual_of(state, bucket, error_feedback=self._error_feedback)
        halves: NDArray[Any] = np.empty(bucket.size, np.uint16 if self._bfloat16 else np.float16)
        largest = float(LARGEST) / links.size  # a sum of all must not overflow either
        for part in accumulate(bucket, residual):
            values = residual[part]
            if self._bfloat16:
                halves[part] = to_bfloat16(values)
                values -= from_bfloat16(halves[part])
            else:
                halves[part] = _limited(values, largest)
                values -= halves[part]
        links.average_halves(halves)
        bucket[:] = from_bfloat16(halves) if self._bfloat16 else halves


def _limited(values: Floats, largest: float) -> Floats:
    """The values, none beyond `largest`; what is not finite is no number, for it must be seen."""
    if np.max(np.abs(values), initial=0) <= largest:
        return values
    return np.where(np.isfinite(values), np.clip(values, -largest, largest), np.float32(np.nan))


def to_bfloat16(values: Floats) -> NDArray[np.uint16]:
    """The upper halves of the nearest bfloat16 numbers, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)
    not_a_number = np.isnan(values)
    if not_a_number.any():
        rounded[not_a_number] = 0x7FC0
    return rounded


def from_bfloat16(halves: NDArray[np.uint16]) -> Floats:
    """The same numbers as float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)
