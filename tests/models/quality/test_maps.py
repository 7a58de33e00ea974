"""Histograms, spectra and KS tests of maps, and what their comparison notices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dlscale.models.quality.maps import (
    DIFFERENT,
    NO_DIFFERENCE,
    THRESHOLDS,
    compare_maps,
    count_vector_p_value,
    ks_tests,
    one_pixel_per_map,
    pixel_counts,
    power_spectra,
)


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


def test_pixels_are_counted_per_map():
    maps = np.random.default_rng(3).uniform(-1, 1, size=(5, 8, 8))
    counts = pixel_counts(maps)
    assert counts.shape == (5, 60)
    np.testing.assert_array_equal(counts[2], np.histogram(maps[2], bins=60, range=(-1.1, 1.1))[0])
    assert counts.sum() == maps.size
    assert pixel_counts(np.full((1, 2, 2), 1.2)).sum() == 0


def test_the_published_test_does_not_see_a_shift():
    maps = 0.2 * np.random.default_rng(4).standard_normal((50, 16, 16))
    bin_width = 2.2 / 60
    shifted = maps + 5 * bin_width
    assert count_vector_p_value(pixel_counts(maps), pixel_counts(shifted)) > 0.99
    # As many maps of each are compared, or all counts would differ.
    assert count_vector_p_value(pixel_counts(maps), pixel_counts(shifted[:20])) > 0.99
    tests = ks_tests(maps.mean(axis=(1, 2))[:, None], shifted.mean(axis=(1, 2))[:, None])
    assert tests.p_values[0] < 1e-6


def test_one_pixel_per_map_keeps_the_level_where_all_pixels_do_not():
    """Maps whose pixels all hang together: two sets of equal distribution."""
    rng = np.random.default_rng(5)
    rejected = {"one": 0, "all": 0}
    for repeat in range(100):
        one, other = (rng.standard_normal((30, 1, 1)) + np.zeros((30, 4, 4)) for _ in range(2))
        chosen = [one_pixel_per_map(maps, seed=repeat) for maps in (one, other)]
        rejected["one"] += stats.ks_2samp(*chosen).pvalue < 0.05
        rejected["all"] += stats.ks_2samp(one.reshape(-1), other.reshape(-1)).pvalue < 0.05
    assert rejected["one"] <= 10
    assert rejected["all"] >= 50


def test_single_pixels_come_from_all_over_the_map():
    maps = np.broadcast_to(np.arange(16.0).reshape(4, 4), (2000, 4, 4))
    chosen = one_pixel_per_map(maps, seed=6)
    assert np.bincount(chosen.astype(int), minlength=16).min() > 80  # 125 on average
    np.testing.assert_array_equal(chosen, one_pixel_per_map(maps, seed=6))


def test_ks_tests_are_scipys_feature_by_feature():
    rng = np.random.default_rng(7)
    ours, theirs = rng.standard_normal((40, 3)), rng.normal([0, 1, 3], size=(25, 3))
    tests = ks_tests(ours, theirs)
    expected = [stats.ks_2samp(a, b).pvalue for a, b in zip(ours.T, theirs.T, strict=True)]
    np.testing.assert_allclose(tests.p_values, expected)
    assert tests.adjusted == pytest.approx(3 * min(expected))
    low, high = min(ours[:, 0].min(), theirs[:, 0].min()), max(ours[:, 0].max(), theirs[:, 0].max())
    counts = [np.histogram(values[:25, 0], bins=60, range=(low, high))[0] for values in (ours, theirs)]
    assert tests.count_p_values[0] == pytest.approx(stats.ks_2samp(*counts).pvalue)


def test_p_values_of_equal_distributions_are_uniform():
    rng = np.random.default_rng(8)
    tests = ks_tests(rng.standard_normal((100, 400)), rng.standard_normal((80, 400)))
    for level in (0.05, 0.5, 0.9):
        assert tests.share_above(level) == pytest.approx(1 - level, abs=0.08)
    assert tests.adjusted > 0.05
    assert tests.count_share_above(0.9) > 0.8  # these are no such p-values


def test_a_feature_without_variation_is_not_tested():
    ours, theirs = np.zeros((20, 3)), np.zeros((20, 3))
    ours[:, 1] = np.arange(20)
    theirs[:, 1] = np.arange(20)
    theirs[:, 2] = 1.0  # constant, but another constant
    tests = ks_tests(ours, theirs)
    assert np.isnan(tests.p_values).tolist() == [True, False, False]
    assert tests.num_tested == 2
    assert tests.p_values[1] == 1
    assert tests.p_values[2] < 1e-6
    assert tests.share_above(0.5) == 0.5
    nothing = ks_tests(ours[:, :1], theirs[:, :1])
    assert (nothing.adjusted, nothing.num_tested, nothing.share_above(0.9)) == (1, 0, 1)


@pytest.mark.filterwarnings("error")
def test_nearly_equal_samples_raise_no_warning():
    """Where SciPy's exact sum rounds to more than 1."""
    values = np.arange(200.0)
    moved = values.copy()
    moved[::2] += 0.5
    assert ks_tests(values[:, None], moved[:, None]).p_values[0] == pytest.approx(1)


def test_features_must_fit():
    with pytest.raises(ValueError, match=r"got \(4, 2\) and \(4, 3\)"):
        ks_tests(np.zeros((4, 2)), np.zeros((4, 3)))
    with pytest.raises(ValueError, match="no test of 0 against 4 maps"):
        ks_tests(np.zeros((0, 2)), np.zeros((4, 2)))


def test_thresholds_are_the_published_ones():
    np.testing.assert_allclose(THRESHOLDS, np.arange(-1.9, 1.71, 0.2))


@pytest.fixture(scope="module")
def reference(gaussian_maps):
    return 0.25 * gaussian_maps(80, 32, width=1.2, seed=10)[0]


def test_sets_alike_are_not_called_different(reference, gaussian_maps):
    for seed in (11, 12, 13):
        candidate = 0.25 * gaussian_maps(60, 32, width=1.2, seed=seed)[0]
        result = compare_maps(reference, candidate)
        assert result.verdict == NO_DIFFERENCE
        assert (result.num_reference, result.num_candidate) == (80, 60)
        assert len(result.spectrum.p_values) == 16
        assert len(result.minkowski.p_values) == 57
        for tests in (result.histogram, result.spectrum, result.minkowski):
            assert tests.share_above(0.05) > 0.8


def test_another_width_is_seen_by_the_spectrum(reference, gaussian_maps):
    result = compare_maps(reference, 0.25 * gaussian_maps(80, 32, width=1.35, seed=14)[0])
    assert result.verdict == DIFFERENT
    assert result.spectrum.adjusted < 1e-6
    assert "80 maps against 80: different" in result.sentence()


def test_another_brightness_is_seen_by_the_histogram(reference):
    result = compare_maps(reference[:40], 1.2 * reference[40:])
    assert result.histogram.adjusted < 1e-3
    assert result.verdict == DIFFERENT


def test_structure_beyond_spectrum_and_histogram_is_seen_by_minkowski_functionals(gaussian_maps):
    """Skewed maps against their negatives with the same spectrum; mirrored about 0, so with the same spread."""
    maps = gaussian_maps(80, 32, width=2.0, seed=15)[0]
    skewed = 0.2 * (maps + 0.4 * (maps**2 - 1))
    result = compare_maps(skewed[:40], -skewed[40:])
    assert result.spectrum.adjusted > 0.05
    assert result.minkowski.adjusted < 1e-6
    assert result.verdict == DIFFERENT


def test_the_published_table(reference):
    rows = compare_maps(reference[:40], reference[40:]).published_rows()
    assert [(row.statistic, row.level, round(row.published, 3)) for row in rows] == [
        ("pixel histogram", 0.999, 1.0),
        ("power spectrum", 0.995, 0.976),
        ("power spectrum", 0.93, 1.0),
        ("Minkowski functionals", 0.999, 0.596),
        ("Minkowski functionals", 0.97, 0.877),
        ("Minkowski functionals", 0.6, 0.982),
        ("Minkowski functionals", 0.32, 1.0),
    ]
    assert rows[0].measured == 1
    assert rows[3].measured <= rows[4].measured <= rows[5].measured <= rows[6].measured <= 1
    assert rows[6].measured > 0.9


def test_maps_that_do_not_fit_are_refused(reference):
    with pytest.raises(ValueError, match="cannot be compared"):
        compare_maps(reference, reference[:, :16, :16])
    with pytest.raises(ValueError, match="square maps"):
        compare_maps(reference[:, :16], reference[:, :16])
    broken = reference.copy()
    broken[3, 2, 1] = np.inf
    with pytest.raises(ValueError, match="not finite; a generator that diverged"):
        compare_maps(reference, broken)
