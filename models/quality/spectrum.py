"""The azimuthally averaged power spectrum of maps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.quality.maps import blocks, check_maps


def power_spectra(maps: NDArray[Any]) -> NDArray[np.float64]:
    """Power of each map at the wavenumbers k = 1 .. H / 2 (cycles per side), shape (N, H // 2).

    |F|^2 / H^2 of the two-dimensional Fourier transform F, averaged over the ring k <= |k| < k + 1: independent
    pixels of variance s^2 have the power s^2 at every k. The mean (k = 0) and the corners beyond H / 2 are left
    out, as in vmos1/cosmogan_pytorch, spec_loss.py. Maps that are cut out of larger ones are not periodic, and
    no window is applied: two sets are comparable, one is no estimate of the sky's spectrum.

    Raises ValueError if `maps` is not (N, H, W) and finite, or not square.
    """
    check_maps(maps)
    num_maps, height, width = maps.shape
    if height != width or height < 2:
        raise ValueError(f"need square maps of 2 x 2 pixels or more, got {height} x {width}")
    wavenumber = np.fft.fftfreq(height, d=1 / height)
    ring = np.hypot(wavenumber[:, None], wavenumber[None, :]).astype(np.int64).reshape(-1)
    order = np.argsort(ring, kind="stable")
    sizes = np.bincount(ring)
    # The wavenumbers in order of their ring, so that a ring is a stretch of them.
    begins = (np.cumsum(sizes) - sizes)[1 : height // 2 + 1]
    inner = order[: sizes[: height // 2 + 1].sum()]
    spectra = np.empty((num_maps, height // 2))
    done = 0
    for block in blocks(maps):
        power = np.square(np.abs(np.fft.fft2(block.astype(np.float64)))).reshape(len(block), -1)
        sums = np.add.reduceat(power[:, inner], begins, axis=1)
        spectra[done : done + len(block)] = sums / sizes[1 : height // 2 + 1] / height**2
        done += len(block)
    return spectra
