"""Threshold: an element whose magnitude passes tau is sent as tau with its sign; what is beyond comes later.

Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", Interspeech 2015. A message is one
uint32 per element: its place, and its sign in the highest bit.
"""

from __future__ import annotations

import numpy as np

from dlscale.collectives.compression.compressor import BucketState, Floats, Message, accumulate_above

SIGN = np.uint32(1 << 31)  # of a word whose other bits are a place
NOT_FINITE = np.uint32(2**32 - 1)  # no place of a bucket


class Threshold:
    """Messages of the places whose magnitude is above `tau` (`Codec`)."""

    def __init__(self, tau: float) -> None:
        self._tau = np.float32(tau)

    def encode(self, bucket: Floats, residual: Floats, state: BucketState) -> Message:  # noqa: ARG002
        """In order of place; last comes `NOT_FINITE` where an element is not, which must be seen."""
        words = accumulate_above(bucket, residual, self._tau)
        found = residual[words]
        residual[words] = found - np.copysign(self._tau, found)
        words |= found.view(np.uint32) & SIGN
        if not np.isfinite(found).all():
            words = np.append(words, NOT_FINITE)
        return words.view(np.uint8)

    def add(self, message: Message, total: Floats, share: np.float32) -> None:
        """No place comes twice."""
        words = message.view(np.uint32)
        if words.size and words[-1] == NOT_FINITE:
            words = words[:-1]
            total += np.float32(np.nan)
        step = share * self._tau
        total[words & ~SIGN] += np.where(words & SIGN, -step, step)
