"""Gaussian random maps with a known spectrum: of them spectra and Minkowski functionals are known."""

from __future__ import annotations

import numpy as np
import pytest


def make(num_maps, size, *, width, seed):
    """Periodic maps (N, H, H) of unit variance, white noise smoothed by a Gaussian of `width` pixels.

    And the expected |F|^2 / H^2 at each wavenumber, shape (H, H).
    """
    k = 2 * np.pi * np.fft.fftfreq(size)
    transfer = np.exp(-(k[:, None] ** 2 + k[None, :] ** 2) * width**2 / 2)
    transfer /= np.sqrt(np.mean(transfer**2))
    noise = np.random.default_rng(seed).standard_normal((num_maps, size, size))
    return np.fft.ifft2(np.fft.fft2(noise) * transfer).real, transfer**2


@pytest.fixture(scope="session")
def gaussian_maps():
    return make
