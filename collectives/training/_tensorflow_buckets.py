"""Gradient exchange for TensorFlow over any `Collective`: by our own operations, or by NumPy without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import BUCKET_SIZES, Collective
from dlscale.collectives.compression import CompressedCollective
from dlscale.collectives.training._tensorflow import PipelinedTrainer, Setting, TensorFlowTrainer, on_gpu
from dlscale.collectives.training._tensorflow_native import (
    HOST,
    NativeExchange,
    is_built,
    staging_settings,
    with_threads,
)
from dlscale.collectives.training.communication import Training
from dlscale.models.workload import Weights


def over(replica: Any, collectives: Sequence[Collective], training: Training) -> TensorFlowTrainer:
    """The replica with its gradients exchanged over `collectives`, one per team; collective.

    With a core to spare on every rank, threads exchange buckets while backpropagation goes on; without, all gradients
    travel not overlapped, after the last of them. So they do where they are compressed.
    """
    if isinstance(collectives[0], CompressedCollective):
        # A bucket must be the same memory in every step, which staging memory is not.
        return BucketTrainer(replica, NumpyExchange(replica, collectives[0]))
    if not is_built():
        if training.pipelined or training.teams > 0:
            raise UsageError(
                "pipelined or teams were asked for, but TensorFlow's operations for them were not built: the "
                "installation found no C++ compiler; reinstall dlscale where there is one, or leave them out"
            )
        return TensorFlowTrainer(replica, NumpyExchange(replica, collectives[0]))
    computed_on_gpu = on_gpu(replica)
    threads = with_threads(collectives[0], training.teams, computes_on_gpu=computed_on_gpu)
    exchange = NativeExchange(collectives, threads=threads, computed_on_gpu=computed_on_gpu)
    if training.pipelined:
        return PipelinedTrainer(replica, exchange, training)
    return TensorFlowTrainer(replica, exchange)


class BucketTrainer(TensorFlowTrainer):
    """A trainer that shows its only bucket (`compression.BucketTrainer`)."""

    _exchange: NumpyExchange

    def buckets(self) -> list[NDArray[Any]]:
        return [self._exchange.bucket]

    def flat(self, arrays: Weights) -> list[NDArray[Any]]:
        """Arrays in the order and shapes of the weights, one after the other."""
        return [np.concatenate([array.reshape(-1) for array in arrays])]


class NumpyExchange:
    """Averages all gradients in one bucket and one call of the collective, after the last of them (`Exchange`)."""

    failure: BaseException | None = None

    def __init__(self, replica: Any, collective: Collective) -> None:
        self._collective, self._from_gpu = collective, on_gpu(replica)
        parameters = [parameter for objective in replica.objectives for parameter in objective.parameters]
        self._ends = np.cumsum([int(np.prod(parameter.shape)) for parameter in parameters])
        self.bucket = collective.empty(int(self._ends[-1]))

    def average(self, gradients: Sequence[Any]) -> list[Any]:
        with tf.device(HOST):
            means: list[Any] = tf.numpy_function(self._means, gradients, [tf.float32] * len(gradients))
        for mean, gradient in zip(means, gradients, strict=True):
            mean.set_shape(gradient.shape)
        return means

    def settings(self) -> dict[str, Setting]:
        """Bytes per exchange, that it does not overlap, copies of all gradients, and the collective's own."""
        return {
            BUCKET_SIZES: str(self.bucket.nbytes),
            "overlap": False,
            "teams": 0,
            "exchange": "numpy_function",
            # Into the bucket, out of it, and into TensorFlow's memory.
            **staging_settings(3, computed_on_gpu=self._from_gpu),
            **self._collective.settings(),
        }

    def close(self) -> None:
        """Nothing to release."""

    def _means(self, *gradients: NDArray[Any]) -> list[NDArray[Any]]:
        pieces = np.split(self.bucket, self._ends[:-1])
        for piece, gradient in zip(pieces, gradients, strict=True):
            piece[:] = gradient.reshape(-1)
        try:
            self._collective.allreduce(self.bucket, "average")
        except Exception as error:
            self.failure = error
            raise
        return [
            piece.reshape(gradient.shape).copy() for piece, gradient in zip(pieces, gradients, strict=True)
        ]
