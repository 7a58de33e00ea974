"""Minkowski functionals of maps: area, boundary and connectivity of what lies above a threshold.

By counting on the pixel lattice (integral geometry: Mecke, Buchert & Wagner 1994; Crofton's formula in Schmalzing &
Buchert, arXiv:astro-ph/9702130), not from derivatives (Schmalzing & Gorski, arXiv:astro-ph/9710185, and LensTools):
counts need no smoothing and no width around a threshold. They are exact for the pixels, and approach the functionals
of the smooth map where structures are several pixels wide. The tests compare with those known of Gaussian maps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.quality.maps import check_maps


def minkowski_functionals(maps: NDArray[Any], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """V0, V1 and V2 of each map's pixels above each of T thresholds, shape (N, 3, T).

    V0: share of the area. V1: length of its boundary per area [1/pixel]; right for directions that are all
    equally likely. V2: Euler characteristic (islands minus holes) per area [1/pixel^2]. Densities are over the
    places in the map, so that its edge adds nothing. In cosmology V1 is often a quarter of this one.

    Raises ValueError if `maps` is not (N, H, W) and finite, or smaller than 2 x 2 pixels.
    """
    check_maps(maps)
    if min(maps.shape[1:]) < 2:
        raise ValueError(f"need maps of 2 x 2 pixels or more, got {maps.shape[1]} x {maps.shape[2]}")
    return np.stack([_functionals(one, thresholds) for one in maps])


def _functionals(one: NDArray[Any], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """V0, V1 and V2 of one map (H, W), shape (3, T).

    Below, pixels are points, neighbours span an edge, and four around a corner a face. An edge or a face belongs
    to the region if all of its pixels do (`min`, then diagonal neighbours are apart) or if any does (`max`, then
    they are joined). Both have an Euler characteristic, points - edges + faces; their mean treats the region and
    its complement alike: V2 changes sign with the map.
    """
    beside, below = (one[:, :-1], one[:, 1:]), (one[:-1], one[1:])
    beside_min, beside_max = np.minimum(*beside), np.maximum(*beside)
    below_min, below_max = np.minimum(*below), np.maximum(*below)
    points = _share_above(one, thresholds)
    beside_all, beside_any = _share_above(beside_min, thresholds), _share_above(beside_max, thresholds)
    below_all, below_any = _share_above(below_min, thresholds), _share_above(below_max, thresholds)
    faces_all = _share_above(np.minimum(below_min[:, :-1], below_min[:, 1:]), thresholds)
    faces_any = _share_above(np.maximum(below_max[:, :-1], below_max[:, 1:]), thresholds)
    apart = points - beside_all - below_all + faces_all
    # Here the region is a union of pixels as squares: faces are pixels, corners are where any of four is in it.
    joined = faces_any - beside_any - below_any + points
    # A curve of length L crosses the lines between pixel centres of either direction 2 L / pi times (Cauchy).
    boundary = np.pi / 4 * (beside_any - beside_all + below_any - below_all)
    return np.stack([points, boundary, (apart + joined) / 2])


def _share_above(values: NDArray[Any], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    # As Python's own numbers, thresholds take the maps' precision, instead of widening every comparison.
    counts = [np.count_nonzero(values > threshold) for threshold in thresholds.tolist()]
    return np.array(counts) / values.size
