"""1-bit SGD: the sign of each element, and per column the mean of those with either sign.

Seide, Fu, Droppo, Li and Yu, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
Training of Speech DNNs", Interspeech 2014: error feedback, a threshold of 0 and the two means that lose least. Their
columns are those of a weight matrix; here they are stretches of a flat bucket. A message is the means (float32, two per
column: below 0, then the others), then the bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.compression.compressor import BLOCK, BucketState, Floats, Message, accumulate

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
            rows = _in_columns(values)
            signs = rows >= 0
            first = part.start // COLUMN
            own = means[first : first + len(rows)]
            counts = np.count_nonzero(signs, axis=1).astype(np.float32)
            own[:, 0] = np.minimum(rows, 0).sum(axis=1) / np.maximum(COLUMN - counts, 1)
            counts[-1] -= rows.size - values.size  # zeros beyond the end
            own[:, 1] = np.maximum(rows, 0).sum(axis=1) / np.maximum(counts, 1)
            packed = np.packbits(signs, bitorder="little")
            bits[part.start // 8 : part.start // 8 + packed.size] = packed
            values -= _decoded(own, signs)[: values.size]
        return message

    def add(self, message: Message, total: Floats, share: np.float32) -> None:
        num_columns = -(-total.size // COLUMN)
        means = message[: 8 * num_columns].view(np.float32).reshape(num_columns, 2) * share
        bits = message[8 * num_columns :]
        for begin in range(0, total.size, BLOCK):
            own = total[begin : begin + BLOCK]
            first, last = begin // COLUMN, -(-(begin + own.size) // COLUMN)
            signs = np.unpackbits(bits[first * COLUMN // 8 : last * COLUMN // 8], bitorder="little")
            own += _decoded(means[first:last], signs.view(np.bool_).reshape(-1, COLUMN))[: own.size]


def _in_columns(values: Floats) -> Floats:
    """[columns, COLUMN]; zeros follow the values in the last one."""
    num_columns = -(-values.size // COLUMN)
    if num_columns * COLUMN == values.size:
        return values.reshape(num_columns, COLUMN)
    rows = np.zeros((num_columns, COLUMN), np.float32)
    rows.reshape(-1)[: values.size] = values
    return rows


def _decoded(means: Floats, signs: NDArray[np.bool_]) -> Floats:
    """A column's means by sign, flat; rounded once, by sender and receivers alike."""
    decoded: Floats = np.multiply(
        signs, means[:, 1:] - means[:, :1], dtype=np.float32
    )  # far quicker than `where`
    decoded += means[:, :1]
    return decoded.reshape(-1)
