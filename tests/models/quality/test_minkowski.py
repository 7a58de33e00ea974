"""Minkowski functionals: by hand, by labelling islands and holes, and as they are known for Gaussian maps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage, stats

from dlscale.models.quality.maps import minkowski_functionals

FOUR = ndimage.generate_binary_structure(2, 1)
EIGHT = ndimage.generate_binary_structure(2, 2)
HALF = np.array([0.5])


def euler(region, *, diagonal):
    """Islands minus holes. Where diagonal neighbours are joined in the region, they are apart in the holes."""
    ours, theirs = (EIGHT, FOUR) if diagonal else (FOUR, EIGHT)
    num_islands = ndimage.label(region, structure=ours)[1]
    num_outside = ndimage.label(~np.pad(region, 1), structure=theirs)[1]
    return num_islands - (num_outside - 1)


def totals(region, *, size=400):
    """V0, V1 and V2 in all, of a region in the middle of a large empty map.

    The map holds a few more pixels than edges and faces, which its densities are per; so these are right to 1 / size
    of the counts.
    """
    framed = np.zeros((1, size, size))
    framed[0, 10 : 10 + region.shape[0], 10 : 10 + region.shape[1]] = region
    return minkowski_functionals(framed, HALF)[0, :, 0] * size**2


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 0.9))
def test_v2_is_islands_minus_holes(seed, fill):
    rng = np.random.default_rng(seed)
    region = rng.random((5, 5)) < fill
    expected = (euler(region, diagonal=False) + euler(region, diagonal=True)) / 2
    assert totals(region)[2] == pytest.approx(expected, abs=0.2)  # it comes in halves


@pytest.mark.parametrize(
    ("rows", "area", "euler_characteristic"),
    [
        (["#"], 1, 1),
        (["##", "##"], 4, 1),
        (["###", "#.#", "###"], 8, 0),
        (["#.#"], 2, 2),
        (["#.", ".#"], 2, 1.5),  # touching at a corner: one island or two
    ],
)
def test_small_regions(rows, area, euler_characteristic):
    region = np.array([[cell == "#" for cell in row] for row in rows])
    v0, _, v2 = totals(region)
    assert v0 == pytest.approx(area)
    assert v2 == pytest.approx(euler_characteristic, abs=0.05)


@pytest.mark.parametrize("radius", [20.0, 50.3])
def test_a_disc_has_its_circumference(radius):
    y, x = np.mgrid[:200, :200]
    v0, v1, v2 = totals(np.hypot(x - 99.7, y - 100.2) < radius)
    assert v0 == pytest.approx(np.pi * radius**2, rel=0.01)
    assert v1 == pytest.approx(2 * np.pi * radius, rel=0.02)
    assert v2 == pytest.approx(1, abs=0.2)


def test_the_edge_of_a_map_is_no_boundary():
    v0, v1, v2 = minkowski_functionals(np.ones((2, 7, 5)), HALF)[0, :, 0]
    assert (v0, v1, v2) == (1, 0, 0)
    assert minkowski_functionals(np.ones((2, 7, 5)), np.array([1.0])).tolist() == [[[0], [0], [0]]] * 2


def test_a_map_and_its_negative_are_treated_alike(gaussian_maps):
    maps, _ = gaussian_maps(3, 32, width=1.0, seed=1)
    thresholds = np.array([-1.0, -0.2, 0.3, 1.5])
    v0, v1, v2 = np.moveaxis(minkowski_functionals(maps, thresholds), 1, 0)
    u0, u1, u2 = np.moveaxis(minkowski_functionals(-maps, -thresholds), 1, 0)
    np.testing.assert_allclose(u0, 1 - v0)
    np.testing.assert_allclose(u1, v1)
    np.testing.assert_allclose(u2, -v2, atol=1e-12)


def test_turned_and_mirrored_maps_are_the_same(gaussian_maps):
    maps, _ = gaussian_maps(2, 24, width=1.0, seed=2)
    thresholds = np.array([-0.5, 0.5])
    expected = minkowski_functionals(maps, thresholds)
    for other in (maps.transpose(0, 2, 1), maps[:, ::-1], maps[:, :, ::-1]):
        np.testing.assert_allclose(minkowski_functionals(other, thresholds), expected, atol=1e-12)


def test_gaussian_maps_have_the_known_functionals(gaussian_maps):
    """With t = <|grad u|^2> / 2 of unit-variance maps u and a threshold v:

    V0 = (1 - erf(v / sqrt 2)) / 2, V1 = sqrt(t) / 2 exp(-v^2 / 2), V2 = t (2 pi)^(-3/2) v exp(-v^2 / 2)
    (Rice's formula for crossings, Adler's for the Euler characteristic).
    """
    size, width = 192, 5.0
    maps, power = gaussian_maps(32, size, width=width, seed=3)
    k = 2 * np.pi * np.fft.fftfreq(size)
    t = np.mean(power * k[:, None] ** 2)  # of the spectrum itself, not of the smooth limit 1 / (2 width^2)
    thresholds = np.array([-2.0, -1.0, -0.4, 0.0, 0.7, 1.0, 2.0])
    gauss = np.exp(-(thresholds**2) / 2)
    expected = np.stack(
        [
            stats.norm.sf(thresholds),
            np.sqrt(t) / 2 * gauss,
            t / (2 * np.pi) ** 1.5 * thresholds * gauss,
        ]
    )
    measured = minkowski_functionals(maps, thresholds)
    standard_error = measured.std(axis=0, ddof=1) / np.sqrt(len(maps))
    # Contours bend by little within a pixel: the lattice misses less than 1.5 % of the largest value.
    lattice = 0.015 * np.abs(expected).max(axis=1, keepdims=True)
    assert np.all(np.abs(measured.mean(axis=0) - expected) < 4 * standard_error + lattice)
    # The errors are small enough for this to mean something.
    assert np.all(standard_error < 0.05 * np.abs(expected).max(axis=1, keepdims=True))


def test_rough_maps_cross_thresholds_as_often_as_their_neighbours_differ():
    """No smoothness is needed for V1's own meaning: independent pixels differ with 2 p (1 - p)."""
    maps = np.random.default_rng(4).standard_normal((8, 128, 128))
    thresholds = np.array([-1.0, 0.0, 0.5])
    p = stats.norm.sf(thresholds)
    v0, v1, v2 = minkowski_functionals(maps, thresholds).mean(axis=0)
    np.testing.assert_allclose(v0, p, atol=0.006)
    np.testing.assert_allclose(v1, np.pi / 4 * 4 * p * (1 - p), atol=0.01)
    apart, joined = (q - 2 * q**2 + q**4 for q in (p, 1 - p))
    np.testing.assert_allclose(v2, (apart - joined) / 2, atol=0.006)


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        (np.zeros((4, 4)), r"\(N, H, W\), got \(4, 4\)"),
        (np.zeros((0, 4, 4)), r"\(N, H, W\)"),
        (np.full((1, 4, 4), np.nan), "not finite"),
        (np.zeros((1, 1, 4)), "2 x 2 pixels or more, got 1 x 4"),
    ],
)
def test_wrong_maps_are_refused(maps, message):
    with pytest.raises(ValueError, match=message):
        minkowski_functionals(maps, HALF)
