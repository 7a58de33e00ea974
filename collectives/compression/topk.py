"""Top-k: the given share of a bucket's elements that are largest, and where they are.

Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017 (arXiv 1704.05021); exact
selection per bucket, where Lin et al. (Deep Gradient Compression, arXiv 1712.01887) select by a sample. A message is k
places (int32), then k values (float32): 8 bytes each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.compression.compressor import BucketState, Floats, Message, accumulate

SAMPLE = 1 << 14  # elements by which a limit that few elements pass is found
MARGIN = 1.5  # of the share that is to pass the limit: so many that k of them are there almost always


class TopK:
    """Messages of the `share` of elements that are largest, at least one (`Codec`)."""

    def __init__(self, share: float) -> None:
        self._share = share

    def encode(self, bucket: Floats, residual: Floats, state: BucketState) -> Message:  # noqa: ARG002
        """The k largest; among equals any, the same ones whenever the elements are the same."""
        count = max(1, round(self._share * bucket.size)) if bucket.size else 0
        limit = self._limit(bucket, residual)
        sizes: list[Floats] = []
        places: list[NDArray[np.int64]] = []
        scratch = np.empty(0, np.float32)
        for part in accumulate(bucket, residual):
            values = residual[part]
            if scratch.size < values.size:
                scratch = np.empty_like(values)
            magnitudes = np.abs(values, out=scratch[: values.size])
            # Not "at least": what is no number is not smaller either, and must travel.
            above = np.flatnonzero(~(magnitudes < limit))
            sizes.append(magnitudes[above])
            places.append(above + part.start)
        found, where = np.concatenate(sizes or [scratch]), np.concatenate(places or [np.empty(0, np.int64)])
        if found.size < count:  # the sample was no good one
            found, where = np.abs(residual), np.arange(residual.size)
        if found.size > count:
            where = where[np.argpartition(found, found.size - count)[found.size - count :]]
        message = np.empty(8 * count, np.uint8)
        message[: 4 * count].view(np.int32)[:] = where
        message[4 * count :].view(np.float32)[:] = residual[where]
        residual[where] = 0
        return message

    def add(self, message: Message, total: Floats, share: np.float32) -> None:
        """No place comes twice."""
        half = message.size // 2
        total[message[:half].view(np.int32)] += share * message[half:].view(np.float32)

    def _limit(self, bucket: Floats, residual: Floats) -> np.float32:
        """A number that somewhat more than k elements reach, by a sample; 0 where a sample is not worth it."""
        stride = bucket.size // SAMPLE
        wanted = int(MARGIN * self._share * SAMPLE) + 16
        if stride < 2 or wanted >= SAMPLE:
            return np.float32(0)
        stride += 1 - stride % 2  # odd: not the same channel in every row
        sample = np.abs(bucket[::stride] + residual[::stride])
        kept = sample.size - int(wanted * sample.size / SAMPLE)
        return np.float32(np.partition(sample, kept)[kept])
