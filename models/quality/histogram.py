"""Histograms of pixel values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.quality.ks import NUM_BINS, ks_p_value
from dlscale.models.quality.maps import check_maps

RANGE = (-1.1, 1.1)  # bins and range: azrael417/cosmoGAN, branch wgan-distributed, validation.py


def pixel_counts(maps: NDArray[Any]) -> NDArray[np.int64]:
    """Pixels of each map in 60 bins on [-1.1, 1.1], shape (N, 60). What lies outside is in no bin.

    Raises ValueError if `maps` is not (N, H, W) and finite.
    """
    check_maps(maps)
    return np.stack([np.histogram(one, bins=NUM_BINS, range=RANGE)[0] for one in maps])


def count_vector_p_value(reference: NDArray[np.int64], candidate: NDArray[np.int64]) -> float:
    """The published test, of `pixel_counts` (N, 60) and (M, 60): KS on the two vectors (60,) of counts of all pixels.

    Over the first min(N, M) maps of each. It is blind to where the counts are (ks.py); for comparison with
    published values only.
    """
    num_maps = min(len(reference), len(candidate))
    return ks_p_value(reference[:num_maps].sum(axis=0), candidate[:num_maps].sum(axis=0))


def one_pixel_per_map(maps: NDArray[Any], *, seed: int) -> NDArray[Any]:
    """A pixel of each map at a random place, shape (N,).

    Pixels of one map depend on each other, which would make a KS test on all of them claim differences that are
    not there; one of each map is a sample it holds for.
    """
    check_maps(maps)
    num_maps, height, width = maps.shape
    rng = np.random.default_rng(seed)
    chosen: NDArray[Any] = maps[
        np.arange(num_maps), rng.integers(height, size=num_maps), rng.integers(width, size=num_maps)
    ]
    return chosen
