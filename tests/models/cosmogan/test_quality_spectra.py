"""Power spectra of maps."""

from __future__ import annotations

import numpy as np
import pytest

from dlscale.models.cosmogan.quality import power_spectra


@pytest.mark.parametrize("size", [9, 16])
def test_spectra_are_means_over_rings(size):
    maps = np.random.default_rng(1).standard_normal((3, size, size)).astype(np.float32)
    k = np.fft.fftfreq(size, d=1 / size)
    expected = np.zeros((3, size // 2))
    for place, one in enumerate(maps):
        power = np.abs(np.fft.fft2(one.astype(np.float64))) ** 2 / size**2
        for ring in range(1, size // 2 + 1):
            inside = [
                power[i, j]
                for i in range(size)
                for j in range(size)
                if ring <= np.hypot(k[i], k[j]) < ring + 1
            ]
            expected[place, ring - 1] = np.mean(inside)
    np.testing.assert_allclose(power_spectra(maps), expected)


def test_spectra_do_not_depend_on_how_many_maps_there_are():
    maps = np.random.default_rng(2).standard_normal((70, 8, 8))
    np.testing.assert_allclose(power_spectra(maps)[69], power_spectra(maps[69:])[0])


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        (np.zeros((3, 16, 8)), "square maps"),
        (np.zeros((16, 16)), "square maps"),
        (np.full((1, 4, 4), np.inf), "not finite; a generator that diverged"),
    ],
)
def test_maps_that_do_not_fit_are_refused(maps, message):
    with pytest.raises(ValueError, match=message):
        power_spectra(maps)
