"""The samples that a rank must have read in a step, by definition: said a second time, for audits."""

from __future__ import annotations

import hashlib
import math
import struct
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dlscale.models.samples import ORDER_SEED
from dlscale.models.workload import Indices, Replica, Shard


def num_wrong_samples(
    replica: Replica, step: int, *, shard: Shard, held_out: float = 0.0, order: int = 0
) -> int:
    """How many samples that a replica read last are not, by definition, those of this shard of `step`."""
    found = replica.last_samples()
    if found is None:
        return 0
    trained = np.flatnonzero(~all_held_out(replica.num_samples(), share=held_out))
    place = (step * shard.count + shard.index) * len(found)
    return int(np.sum(found != trained[samples_at(place, len(found), num_samples=len(trained), order=order)]))


@lru_cache(maxsize=1)  # hashing a million samples takes a second
def all_held_out(num_samples: int, *, share: float) -> NDArray[np.bool_]:
    """Which samples no training may see: those whose index's hash, as a part of all hashes, is below the share.

    `models.held_out` selects by the same rule. The array is not to be changed.
    """
    if not share:
        return np.zeros(num_samples, np.bool_)
    limit = math.ceil(share * 2**64)
    hashes = (
        hashlib.blake2b(struct.pack("<Q", index), digest_size=8).digest() for index in range(num_samples)
    )
    return np.array([int.from_bytes(found, "little") < limit for found in hashes], np.bool_)


def samples_at(first: int, count: int, *, num_samples: int, order: int = 0) -> Indices:
    """Samples at so many places, from `first` on, of the endless row of shuffled epochs that all ranks train on.

    `models.samples.shard_indices` cuts shards from it; an audit by the same lines would be none.
    """
    places = np.arange(first, first + count)
    return np.array(
        [_epoch(place // num_samples, num_samples, order)[place % num_samples] for place in places]
    )


@lru_cache(maxsize=2)  # a batch may reach into the next one
def _epoch(number: int, num_samples: int, order: int) -> Indices:
    return np.random.default_rng((ORDER_SEED + order, int(number))).permutation(num_samples)
