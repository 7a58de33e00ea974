"""How far the maps that CosmoGAN draws are from maps that it was not trained on.

Both distances are those of Kolmogorov and Smirnov: the largest difference between two cumulative distributions, 0 for
equal ones and 1 for sets apart. One is of all pixels; the other, for each wavenumber, of the maps' powers, and its mean
over wavenumbers. They are distances and no tests: pixels of one map depend on each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.cosmogan import LATENT_SIZE
from dlscale.models.quality.metric import Measured, Metric, Predict
from dlscale.models.samples import Arrays, Samples

Z_SEED = 20170606  # of the z that evaluations draw maps from: the same in all of them
NUM_BINS = 400  # of pixels in [-1, 1], which is all that the generator's tanh can draw; what lies outside is at an end

_MAPS_PER_BLOCK = 32  # of 256x256: some 50 MB of complex numbers, whatever the size of the set

METRICS = {
    "pixel_distance": Metric(text="KS distance of the pixels", higher_is_better=False),
    "spectrum_distance": Metric(text="mean KS distance of the power spectra", higher_is_better=False),
}


def read(samples: Samples, indices: NDArray[np.int64]) -> Arrays:
    """Maps (N, H, W, 1), and z (N, LATENT_SIZE) to draw as many from."""
    (maps,) = samples.read(indices)
    z = [np.random.default_rng((Z_SEED, index)).standard_normal(LATENT_SIZE) for index in indices.tolist()]
    return maps, np.array(z, dtype=np.float32)


def measure(predict: Predict, maps: NDArray[Any], z: NDArray[Any]) -> Measured:
    """Counts of pixels (N, NUM_BINS) and powers (N, H / 2) of real and of drawn maps.

    Those of drawn ones are NaN if a pixel is not a finite number.
    """
    drawn = predict(z)
    whole = np.isfinite(drawn).all()
    real_pixels, real_powers = _pixels(maps), power_spectra(maps[..., 0])
    return {
        "real_pixels": real_pixels,
        "drawn_pixels": _pixels(drawn) if whole else np.full_like(real_pixels, np.nan),
        "real_powers": real_powers,
        "drawn_powers": power_spectra(drawn[..., 0]) if whole else np.full_like(real_powers, np.nan),
    }


def metrics(measured: Measured) -> dict[str, float]:
    """Both distances; none if a drawn pixel is not a finite number."""
    if any(np.isnan(values).any() for values in measured.values()):
        return {}
    cumulated = [np.cumsum(measured[name].sum(axis=0)) for name in ("real_pixels", "drawn_pixels")]
    real, drawn = (counts / counts[-1] for counts in cumulated)
    powers = zip(measured["real_powers"].T, measured["drawn_powers"].T, strict=True)
    return {
        "pixel_distance": float(np.abs(real - drawn).max()),
        "spectrum_distance": float(np.mean([_distance(*pair) for pair in powers])),
    }


def _pixels(maps: NDArray[Any]) -> NDArray[np.float64]:
    inside = np.clip(maps, -1, 1)
    return np.stack([np.histogram(one, bins=NUM_BINS, range=(-1, 1))[0] for one in inside]).astype(np.float64)


def _distance(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    places = np.sort(np.concatenate([first, second]))
    shares = (
        np.searchsorted(np.sort(values), places, side="right") / len(values) for values in (first, second)
    )
    return float(np.abs(np.subtract(*shares)).max())


def power_spectra(maps: NDArray[Any]) -> NDArray[np.float64]:
    """Power of each map at the wavenumbers k = 1 .. H / 2 (cycles per side), shape (N, H // 2).

    |F|^2 / H^2 of the two-dimensional Fourier transform F, averaged over the ring k <= |k| < k + 1: independent
    pixels of variance s^2 have the power s^2 at every k. The mean (k = 0) and the corners beyond H / 2 are left
    out, as in vmos1/cosmogan_pytorch, spec_loss.py. Maps that are cut out of larger ones are not periodic, and
    no window is applied: two sets are comparable, one is no estimate of the sky's spectrum.

    Raises ValueError if `maps` is not (N, H, H) with H of 2 or more, or not finite.
    """
    if maps.ndim != 3 or not len(maps) or maps.shape[1] != maps.shape[2] or maps.shape[1] < 2:
        raise ValueError(f"need square maps (N, H, H) of 2 x 2 pixels or more, got {maps.shape}")
    if not np.isfinite(maps).all():
        raise ValueError("maps hold numbers that are not finite; a generator that diverged makes such")
    num_maps, height, _ = maps.shape
    wavenumber = np.fft.fftfreq(height, d=1 / height)
    ring = np.hypot(wavenumber[:, None], wavenumber[None, :]).astype(np.int64).reshape(-1)
    order = np.argsort(ring, kind="stable")
    sizes = np.bincount(ring)
    # The wavenumbers in order of their ring, so that a ring is a stretch of them.
    begins = (np.cumsum(sizes) - sizes)[1 : height // 2 + 1]
    inner = order[: sizes[: height // 2 + 1].sum()]
    spectra = np.empty((num_maps, height // 2))
    for begin in range(0, num_maps, _MAPS_PER_BLOCK):
        block = maps[begin : begin + _MAPS_PER_BLOCK]
        power = np.square(np.abs(np.fft.fft2(block.astype(np.float64)))).reshape(len(block), -1)
        sums = np.add.reduceat(power[:, inner], begins, axis=1)
        spectra[begin : begin + len(block)] = sums / sizes[1 : height // 2 + 1] / height**2
    return spectra
