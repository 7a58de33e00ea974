"""Gradient exchange for JAX over any `Collective`: one bucket on the host, between two compiled programs.

XLA hands out a program's results together, so that nothing is left to overlap with. On a CPU NumPy reads its gradients
in place; the update reads the bucket, which is the collective's own memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.backend import BUCKET_SIZES, Collective
from dlscale.collectives.training._jax import JaxTrainer
from dlscale.collectives.training.communication import Training
from dlscale.models.workload import Weights


def over(replica: Any, collectives: Sequence[Collective], training: Training) -> BucketTrainer:
    """The replica with its gradients exchanged over the only one of `collectives`. Raises UsageError for teams."""
    training.check(framework="jax")
    return BucketTrainer(replica, collectives[0])


class BucketTrainer(JaxTrainer):
    """A trainer that shows its only bucket (`Trainer`, `compression.trainer.BucketTrainer`)."""

    def __init__(self, replica: Any, collective: Collective) -> None:
        super().__init__(replica)
        self._collective = collective
        sizes = [weight.size for weight in replica.weights()]
        self._bucket = collective.empty(sum(sizes))
        self._pieces = np.split(self._bucket, np.cumsum(sizes)[:-1])

    def step(self) -> None:
        """Train on one local batch.

        The bucket is written again only when the next gradients are there, and those need this update's weights.
        """
        loss, gradients = self._replica.differentiate(*self._replica.next_batch())
        for piece, gradient in zip(self._pieces, gradients, strict=True):
            piece[:] = np.asarray(gradient).reshape(-1)
        self._collective.allreduce(self._bucket, "average")
        self._replica.update(self._pieces)
        self._losses = [loss]

    def settings(self) -> dict[str, str | int | float | bool]:
        """Bytes per exchange, that it does not overlap, copies of all gradients, and the collective's own."""
        return {
            BUCKET_SIZES: str(self._bucket.nbytes),
            "overlap": False,
            "teams": 0,
            "exchange": "host_buffer",
            **self._collective.settings(),
        }

    def buckets(self) -> list[NDArray[Any]]:
        return [self._bucket]

    def flat(self, arrays: Weights) -> list[NDArray[Any]]:
        """Arrays in the order and shapes of the weights, one after the other."""
        return [np.concatenate([array.reshape(-1) for array in arrays])]
