"""Dropout masks as inputs of a step, drawn with NumPy, so that they are the same in every framework."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.uint8]


def draw_masks(rng: np.random.Generator, shapes: Sequence[tuple[int, ...]], num_samples: int) -> list[Mask]:
    """One mask of 0 (dropped) and 1 (kept) per shape, each (N, *shape); both are equally likely.

    A keep probability of 1/2 needs one random bit per value, which is many times cheaper than a float.
    """
    counts = [num_samples * int(np.prod(shape)) for shape in shapes]
    bits = np.unpackbits(np.frombuffer(rng.bytes(-(-sum(counts) // 8)), dtype=np.uint8))
    pieces = np.split(bits[: sum(counts)], np.cumsum(counts)[:-1])
    return [piece.reshape(num_samples, *shape) for piece, shape in zip(pieces, shapes, strict=True)]
