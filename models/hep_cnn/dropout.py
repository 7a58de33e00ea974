"""Dropout masks as inputs, so that they are the same in every framework."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dlscale.models.hep_cnn import KEEP_PROBABILITY, Network

Mask = NDArray[np.uint8]


def mask_shapes(network: Network, *, height: int, width: int) -> list[tuple[int, ...]]:
    """Shapes of one sample's masks, in the order of the layers: (H, W, C) after each pool, (units,) after dense."""
    num_pools = network.num_convolutions if network.num_hidden else network.num_convolutions - 1
    shapes: list[tuple[int, ...]] = [
        (height >> pool, width >> pool, network.num_filters) for pool in range(1, num_pools + 1)
    ]
    return [*shapes, (network.num_hidden,)] if network.num_hidden else shapes


def draw_masks(rng: np.random.Generator, shapes: list[tuple[int, ...]], num_samples: int) -> list[Mask]:
    """One mask of 0 (dropped) and 1 (kept) per shape, each (N, *shape).

    A keep probability of 1/2 needs one random bit per value, which is many times cheaper than a float.
    """
    if KEEP_PROBABILITY != 0.5:
        raise ValueError(
            f"masks are drawn as single bits, for a keep probability of 0.5, not {KEEP_PROBABILITY}"
        )
    counts = [num_samples * int(np.prod(shape)) for shape in shapes]
    bits = np.unpackbits(np.frombuffer(rng.bytes(-(-sum(counts) // 8)), dtype=np.uint8))
    pieces = np.split(bits[: sum(counts)], np.cumsum(counts)[:-1])
    return [piece.reshape(num_samples, *shape) for piece, shape in zip(pieces, shapes, strict=True)]
