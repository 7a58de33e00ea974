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
from dlscale.models.quality.maps import power_spectra
from dlscale.models.quality.metric import Measured, Metric, Predict
from dlscale.models.samples import Arrays, Samples

Z_SEED = 20170606  # of the z that evaluations draw maps from: the same in all of them
NUM_BINS = 400  # of pixels in [-1, 1], which is all that the generator's tanh can draw; what lies outside is at an end

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
