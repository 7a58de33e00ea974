"""Top-k: the given share of a bucket's elements that are largest, and where they are.

Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017 (arXiv 1704.05021); exact
selection per bucket, where Lin et al. (Deep Gradient Compression, arXiv 1712.01887) select by a sample. A message is k
places (uint32), then k values (float32): 8 bytes each.
"""

from __future__ import annotations

import numpy as np

from dlscale.collectives.compression.compressor import BucketState, Floats, Message, accumulate_above

SAMPLE = 1 << 14  # elements by which a limit that few elements pass is found
MARGIN = 1.5  # of the share that is to pass the limit: so many that k of them are there almost always


class TopK:
    """Messages of the `share` of elements that are largest, at least one (`Codec`)."""

    def __init__(self, share: float) -> None:
        self._share = share

    def encode(self, bucket: Floats, residual: Floats, state: BucketState) -> Message:  # noqa: ARG002
        """The k largest; among equals any, the same ones whenever the elements are the same."""
        count = max(1, round(self._share * bucket.size)) if bucket.size else 0
        places = accumulate_above(bucket, residual, self._limit(bucket, residual))
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
        stride = bucket.size // SAMPLE
        wanted = int(MARGIN * self._share * SAMPLE) + 16
        if stride < 2 or wanted >= SAMPLE:
            return np.float32(0)
        stride += 1 - stride % 2  # odd: not the same channel in every row
        sample = np.abs(bucket[::stride] + residual[::stride])
        kept = sample.size - int(wanted * sample.size / SAMPLE)
        return np.float32(np.partition(sample, kept)[kept])
