"""Sets of maps (N, H, W), such as simulated and generated convergence maps with pixels in [-1, 1]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAPS_PER_BLOCK = 32  # of 256x256: some 50 MB of complex numbers, whatever the size of the set


def check_maps(maps: NDArray[Any]) -> None:
    """Returns if `maps` is a set of maps (N, H, W) of finite numbers. Raises ValueError."""
    if maps.ndim != 3 or 0 in maps.shape:
        raise ValueError(f"need maps of shape (N, H, W), got {maps.shape}")
    if not all(np.all(np.isfinite(block)) for block in blocks(maps)):
        raise ValueError("maps hold numbers that are not finite; a generator that diverged makes such")


def blocks(maps: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The maps in order, a few at a time."""
    for begin in range(0, len(maps), _MAPS_PER_BLOCK):
        yield maps[begin : begin + _MAPS_PER_BLOCK]
