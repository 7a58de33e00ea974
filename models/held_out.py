"""The held-out part of an input: the samples that no training sees, for measuring the quality of what was trained.

A sample is held out if a hash of its index (blake2b of 8 bytes, little-endian), as a number in [0, 1), is below the
share. So the part is the same on every rank, for every number of ranks and in every framework, and it does not depend
on the order in which others are drawn.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def held_out_samples(num_samples: int, *, share: float) -> NDArray[np.int64]:
    """The indices of the held-out samples, ascending."""
    return np.flatnonzero(_places(num_samples) < share) if share else np.zeros(0, np.int64)


def training_samples(num_samples: int, *, share: float) -> NDArray[np.int64]:
    """The indices of all other samples, ascending."""
    return np.flatnonzero(_places(num_samples) >= share) if share else np.arange(num_samples)


def _places(num_samples: int) -> NDArray[np.float64]:
    digests = b"".join(
        hashlib.blake2b(index.to_bytes(8, "little"), digest_size=8).digest() for index in range(num_samples)
    )
    return np.frombuffer(digests, dtype="<u8") / 2.0**64
