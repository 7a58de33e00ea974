"""1-bit SGD: the sign of each element, and per column the mean of those with either sign.

Seide, Fu, Droppo, Li and Yu, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
Training of Speech DNNs", Interspeech 2014: error feedback, a threshold of 0 and the two means that lose least. Their
columns are those of a weight matrix; here they are stretches of a flat bucket. A message is the means (float32, two per
column: below 0, then the others), then the bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.compression.compressor import BucketState, Floats, Message, accumulate

COLUMN = 512  # elements; the means add an eighth of the bits' bytes


class OneBit:
    """Messages of one bit per element (`Codec`)."""

    def encode(self, bucket: Floats, residual: Floats, state: BucketState) -> Message:  # noqa: ARG002
        """The last column may be shorter."""
        num_columns = -(-bucket.size // COLUMN)
        num_bits = num_columns * COLUMN
        message = np.zeros(8 * num_columns + num_bits // 8, np.uint8)
        means = message[: 8 * num_columns].view(np.float32).reshape(num_columns, 2)
        bits = message[8 * num_columns :]
        for part in accumulate(bucket, residual, multiple=COLUMN):
            values = residual[part]
            signs = values >= 0
            packed = np.packbits(signs, bitorder="little")
            bits[part.start // 8 : part.start // 8 + packed.size] = packed
            starts = np.arange(0, values.size, COLUMN)
            lengths = np.diff(starts, append=values.size)
            counts = np.add.reduceat(signs, starts, dtype=np.int64)
            upper = np.add.reduceat(np.where(signs, values, 0), starts)
            lower = np.add.reduceat(np.where(signs, 0, values), starts)
            own = means[part.start // COLUMN : part.start // COLUMN + starts.size]
            own[:, 0] = lower / np.maximum(lengths - counts, 1)
            own[:, 1] = upper / np.maximum(counts, 1)
            values -= _decoded(own, signs, lengths)
        return message

    def add(self, message: Message, total: Floats, share: np.float32) -> None:
        """A mean per element."""
        num_columns = -(-total.size // COLUMN)
        means = message[: 8 * num_columns].view(np.float32).reshape(num_columns, 2) * share
        bits = np.unpackbits(message[8 * num_columns :], count=total.size, bitorder="little").view(np.bool_)
        lengths = np.diff(np.arange(0, total.size, COLUMN), append=total.size)
        total += _decoded(means, bits, lengths)


def _decoded(means: Floats, signs: NDArray[np.bool_], lengths: NDArray[np.int64]) -> Floats:
    decoded: Floats = np.where(signs, np.repeat(means[:, 1], lengths), np.repeat(means[:, 0], lengths))
    return decoded
