"""Threshold: an element whose magnitude passes tau is sent as tau with its sign; what is beyond comes later.

Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", Interspeech 2015. A message is one
uint32 per element: its place, and its sign in the highest bit.
"""

from __future__ import annotations

import numpy as np

from dlscale.collectives.compression.compressor import BucketState, Floats, Message, accumulate

SIGN = np.uint32(1 << 31)
NOT_FINITE = np.uint32(2**32 - 1)  # no place of a bucket


class Threshold:
    """Messages of the places whose magnitude is above `tau` (`Codec`)."""

    def __init__(self, tau: float) -> None:
        self._tau = np.float32(tau)

    def encode(self, bucket: Floats, residual: Floats, state: BucketState) -> Message:  # noqa: ARG002
        """In order of place; last comes `NOT_FINITE` where an element is not, which must be seen."""
        words, not_finite = [], False
        for part in accumulate(bucket, residual):
            values = residual[part]
            above = np.flatnonzero(~(np.abs(values) <= self._tau))
            if above.size:
                found = values[above]
                values[above] = found - np.copysign(self._tau, found)
                place = (above + part.start).astype(np.uint32)
                words.append(place | np.where(np.signbit(found), SIGN, np.uint32(0)))
                not_finite = not_finite or not np.isfinite(found).all()
        if not_finite:
            words.append(np.array([NOT_FINITE]))
        return np.concatenate(words).view(np.uint8) if words else np.empty(0, np.uint8)

    def add(self, message: Message, total: Floats, share: np.float32) -> None:
        """No place comes twice."""
        words = message.view(np.uint32)
        if words.size and words[-1] == NOT_FINITE:
            words = words[:-1]
            total += np.float32(np.nan)
        step = share * self._tau
        total[words & ~SIGN] += np.where(words & SIGN, -step, step)
