"""Which samples each rank trains on at each step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dlscale.models.workload import Shard


def shard_indices(
    num_samples: int, *, shard: Shard, local_batch: int, seed: int, begin: int = 0
) -> Iterator[NDArray[np.int64]]:
    """Endless local batches of sample indices, [local_batch], from step `begin` on.

    No overlap between ranks, no sample left out.

    Picture one endless row of indices, epoch after epoch, each epoch shuffled by (seed, epoch) alike on all
    ranks. Step s takes the next P * local_batch of them, and shard r takes the r-th piece. A step may reach
    over the end of an epoch, so nothing is dropped where the sizes do not divide.
    """

    @lru_cache(maxsize=2)  # a batch touches at most the end of one epoch and the start of the next, mostly
    def order(epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng((seed, epoch)).permutation(num_samples)

    step = begin
    while True:
        first = (step * shard.count + shard.index) * local_batch
        epochs, places = np.divmod(np.arange(first, first + local_batch), num_samples)
        yield np.array([order(int(epoch))[place] for epoch, place in zip(epochs, places, strict=True)])
        step += 1
