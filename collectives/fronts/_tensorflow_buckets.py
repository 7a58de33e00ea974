"""Gradient exchange for TensorFlow over any `Collective`: one flat bucket per step, in line.

The graph lays all gradients end to end, hands them to the collective in one call, and cuts the means apart again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dlscale.collectives.backend import Collective
from dlscale.collectives.fronts._tensorflow import Setting, TensorFlowTrainer


class BucketExchange:
    """Averages all gradients in one call of the collective, after the last of them (`Exchange`)."""

    def __init__(self, collective: Collective) -> None:
        self._collective = collective
        self._num_bytes = 0
        self._num_copies = 2  # into the bucket and out of it

    def average(self, gradients: Sequence[Any]) -> list[Any]:
        """The means over ranks, in order."""
        flat = tf.concat([tf.reshape(gradient, (-1,)) for gradient in gradients], axis=0)
        self._num_bytes = int(flat.shape[0]) * flat.dtype.size
        (mean,) = tf.numpy_function(self._mean, [flat], [flat.dtype])
        mean.set_shape(flat.shape)
        pieces = tf.split(mean, [int(np.prod(gradient.shape)) for gradient in gradients])
        return [tf.reshape(piece, gradient.shape) for piece, gradient in zip(pieces, gradients, strict=True)]

    def settings(self) -> dict[str, Setting]:
        """Bytes per exchange, that it does not overlap, copies of all gradients, and the collective's own."""
        return {
            "bucket_bytes": str(self._num_bytes),
            "overlap": False,
            "staging_copies": self._num_copies,
            **self._collective.settings(),
        }

    def _mean(self, flat: NDArray[Any]) -> NDArray[Any]:
        """The mean over ranks; in the array that TensorFlow lends where it may be written."""
        if not (flat.flags.writeable and flat.flags.aligned):
            self._num_copies = 3
            flat = flat.copy()
        self._collective.allreduce(flat)
        if self._collective.size > 1:
            np.divide(flat, self._collective.size, out=flat)
        return flat


def over(replica: Any, collective: Collective) -> TensorFlowTrainer:
    """The replica with its gradients exchanged over `collective`."""
    return TensorFlowTrainer(replica, BucketExchange(collective))
