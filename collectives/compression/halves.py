"""Gradients as numbers of 16 bits: IEEE's float16, or bfloat16, which has float32's range.

Rounded to the nearest, ties to even: each rank's gradients when they are handed over, with error feedback, and once
more the mean. A magnitude beyond float16's largest number over P is handed over as that; the rest of it is fed back.
"""

from __future__ import annotations

import numpy as np

from dlscale.collectives.compression import native
from dlscale.collectives.compression.compressor import BucketState, Floats, residual_of
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
        if self._bfloat16:
            rounded = native.round_bfloat16(bucket, residual)
            links.average_halves(rounded)
            native.widen_bfloat16(rounded, bucket)
            return
        largest = float(LARGEST) / links.size  # a sum of all must not overflow either
        halves = native.round_float16(bucket, residual, largest)
        links.average_halves(halves)
        native.widen_float16(halves, bucket)
