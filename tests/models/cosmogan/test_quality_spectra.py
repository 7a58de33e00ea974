"""Power spectra of maps."""

from __future__ import annotations

import numpy as np
import pytest

from dlscale.models.cosmogan.quality import power_spectra


def test_white_noise_has_its_variance_at_every_wavenumber():
    maps = 0.5 * np.random.default_rng(0).standard_normal((400, 16, 16))
    spectra = power_spectra(maps)
    assert spectra.shape == (400, 8)
    np.testing.assert_allclose(spectra.mean(axis=0), 0.25, rtol=0.1)
    np.testing.assert_allclose(power_spectra(maps + 3.0), spectra)  # the mean is no moment


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


def test_a_wave_is_in_its_ring():
    x = np.arange(32)
    wave = np.broadcast_to(np.cos(2 * np.pi * 5 * x / 32), (1, 32, 32))
    (spectrum,) = power_spectra(wave)
    assert np.argmax(spectrum) == 4
    assert spectrum[4] > 0.999 * spectrum.sum()


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
