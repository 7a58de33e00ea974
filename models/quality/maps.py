"""Do two sets of maps look alike? CosmoGAN's statistics of simulated against generated convergence maps.

Maps are (N, H, W), with pixels in [-1, 1]. Compared are histograms of pixels, azimuthally averaged power spectra,
and Minkowski functionals: area, boundary and connectivity of what lies above a threshold, by counting on the pixel
lattice (integral geometry: Mecke, Buchert & Wagner 1994; Crofton's formula in Schmalzing & Buchert, arXiv:astro-
ph/9702130). The tests are Kolmogorov-Smirnov's, feature by feature. A feature is one number per map, and two sets of
maps are two samples of it: maps, unlike pixels, are independent.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

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


NUM_BINS = 60  # of the published histogram of pixels


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KsTests:
    """p-values of F features, each array (F,). NaN: one constant in both sets, so there was nothing to test."""

    p_values: NDArray[np.float64]
    count_p_values: NDArray[np.float64]  # on count vectors, as published

    @property
    def num_tested(self) -> int:
        """Features that vary."""
        return int(np.count_nonzero(~np.isnan(self.p_values)))

    @property
    def adjusted(self) -> float:
        """The smallest p-value times the number of tests (Bonferroni), at most 1: that of all features together.

        Valid however the features depend on each other.
        """
        if not self.num_tested:
            return 1.0
        return min(1.0, float(np.nanmin(self.p_values)) * self.num_tested)

    def share_above(self, level: float) -> float:
        """Share of the tested features with a p-value of at least `level`; of equal sets about 1 - `level`."""
        return _share_of_features(self.p_values, level)

    def count_share_above(self, level: float) -> float:
        """The same for the p-values on count vectors."""
        return _share_of_features(self.count_p_values, level)


def ks_tests(reference: NDArray[np.float64], candidate: NDArray[np.float64]) -> KsTests:
    """Tests of the features (N, F) of N reference maps against those (M, F) of M candidates.

    Histograms, for the count vectors, have 60 bins from the smallest to the largest value of both, and take the
    first min(N, M) maps of each. Raises ValueError if the features are not the same in number, or N or M is 0.
    """
    if reference.ndim != 2 or candidate.ndim != 2 or reference.shape[1] != candidate.shape[1]:
        raise ValueError(f"need features (N, F) and (M, F), got {reference.shape} and {candidate.shape}")
    if not len(reference) or not len(candidate):
        raise ValueError(f"no test of {len(reference)} against {len(candidate)} maps")
    p_values = np.full(reference.shape[1], np.nan)
    count_p_values = np.full_like(p_values, np.nan)
    num_maps = min(len(reference), len(candidate))
    for feature, (ours, theirs) in enumerate(zip(reference.T, candidate.T, strict=True)):
        low, high = min(ours.min(), theirs.min()), max(ours.max(), theirs.max())
        if low == high:
            continue
        p_values[feature] = ks_p_value(ours, theirs)
        count_p_values[feature] = ks_p_value(
            *(
                np.histogram(values[:num_maps], bins=NUM_BINS, range=(low, high))[0]
                for values in (ours, theirs)
            )
        )
    return KsTests(p_values=p_values, count_p_values=count_p_values)


def ks_p_value(reference: NDArray[Any], candidate: NDArray[Any]) -> float:
    """p-value of the two-sided two-sample test of values (N,) and (M,), exact up to 10,000 of them."""
    from scipy.stats import ks_2samp

    with warnings.catch_warnings():
        # An exact sum near 1 may round to more than 1. SciPy warns of it and takes the asymptotic formula,
        # which is as good there: with smaller p-values, where it is not, the exact sum is fine.
        warnings.filterwarnings("ignore", "ks_2samp: Exact calculation unsuccessful", RuntimeWarning)
        return float(ks_2samp(reference, candidate).pvalue)


def _share_of_features(p_values: NDArray[np.float64], level: float) -> float:
    tested = p_values[~np.isnan(p_values)]
    return float(np.mean(tested >= level)) if len(tested) else 1.0


PIXEL_RANGE = (-1.1, 1.1)  # bins and range: azrael417/cosmoGAN, branch wgan-distributed, validation.py


def pixel_counts(maps: NDArray[Any]) -> NDArray[np.int64]:
    """Pixels of each map in 60 bins on [-1.1, 1.1], shape (N, 60). What lies outside is in no bin.

    Raises ValueError if `maps` is not (N, H, W) and finite.
    """
    check_maps(maps)
    return np.stack([np.histogram(image, bins=NUM_BINS, range=PIXEL_RANGE)[0] for image in maps])


def count_vector_p_value(reference: NDArray[np.int64], candidate: NDArray[np.int64]) -> float:
    """The published test, of `pixel_counts` (N, 60) and (M, 60): KS on the two vectors (60,) of counts of all pixels.

    Over the first min(N, M) maps of each. It is blind to where the counts are (ks.py); for comparison with
    published values only.
    """
    num_maps = min(len(reference), len(candidate))
    return ks_p_value(reference[:num_maps].sum(axis=0), candidate[:num_maps].sum(axis=0))


def one_pixel_per_map(maps: NDArray[Any], *, seed: int) -> NDArray[Any]:
    """A pixel of each map at a random place, shape (N,).

    Pixels of one map depend on each other, which would make a KS test on all of them claim differences that are
    not there; one of each map is a sample it holds for.
    """
    check_maps(maps)
    num_maps, height, width = maps.shape
    rng = np.random.default_rng(seed)
    chosen: NDArray[Any] = maps[
        np.arange(num_maps), rng.integers(height, size=num_maps), rng.integers(width, size=num_maps)
    ]
    return chosen


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
    return np.stack([_functionals(image, thresholds) for image in maps])


def _functionals(image: NDArray[Any], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """V0, V1 and V2 of one map (H, W), shape (3, T).

    Below, pixels are points, neighbours span an edge, and four around a corner a face. An edge or a face belongs
    to the region if all of its pixels do (`min`, then diagonal neighbours are apart) or if any does (`max`, then
    they are joined). Both have an Euler characteristic, points - edges + faces; their mean treats the region and
    its complement alike: V2 changes sign with the map.
    """
    beside, below = (image[:, :-1], image[:, 1:]), (image[:-1], image[1:])
    beside_min, beside_max = np.minimum(*beside), np.maximum(*beside)
    below_min, below_max = np.minimum(*below), np.maximum(*below)
    points = _share_above(image, thresholds)
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


SIGNIFICANCE_LEVEL = 0.05
DIFFERENT = "different"
NO_DIFFERENCE = "no difference shown"

# In standard deviations from the mean. MustafaMustafa/cosmoGAN, slides/2017-05-16, figures minkowski_*: -1.9 to 1.7 in
# steps of 0.2, which with three functionals are the 57 tests that the slides count.
THRESHOLDS = tuple((2 * step - 19) / 10 for step in range(19))

# The same slides: p-values on count vectors, and how many tests reached them.
_PUBLISHED_ROWS = (
    ("pixel histogram", 0.999, 1, 1),
    ("power spectrum", 0.995, 242, 248),
    ("power spectrum", 0.93, 248, 248),
    ("Minkowski functionals", 0.999, 34, 57),
    ("Minkowski functionals", 0.97, 50, 57),
    ("Minkowski functionals", 0.6, 56, 57),
    ("Minkowski functionals", 0.32, 57, 57),
)


class PublishedRow(NamedTuple):
    """Share of tests on count vectors whose p-value reaches `level`: as published, and of these maps."""

    statistic: str
    level: float
    published: float
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MapComparison:
    """A candidate set of maps against a reference set."""

    num_reference: int
    num_candidate: int
    pixel_p_value: float  # of one pixel per map
    pixel_count_p_value: float  # on count vectors, as published
    histogram: KsTests  # per bin of the maps' histograms
    spectrum: KsTests  # per wavenumber k = 1 .. H / 2
    minkowski: KsTests  # V0, V1, V2, each per threshold

    @property
    def adjusted(self) -> float:
        """One p-value for all: the smallest of the four statistics', times four (Bonferroni)."""
        parts = (self.histogram.adjusted, self.spectrum.adjusted, self.minkowski.adjusted)
        return min(1.0, 4 * min(self.pixel_p_value, *parts))

    @property
    def verdict(self) -> str:
        """`DIFFERENT` if the sets differ at the level of 5 % in all; sets alike are called so in 5 % at most."""
        return DIFFERENT if self.adjusted < SIGNIFICANCE_LEVEL else NO_DIFFERENCE

    def published_rows(self) -> list[PublishedRow]:
        """The published table, with what the same kind of test gives here; with few maps even equal sets give less."""
        tests = {"power spectrum": self.spectrum, "Minkowski functionals": self.minkowski}
        return [
            PublishedRow(
                statistic,
                level,
                reached / of,
                tests[statistic].count_share_above(level)
                if statistic in tests
                else float(self.pixel_count_p_value >= level),
            )
            for statistic, level, reached, of in _PUBLISHED_ROWS
        ]

    def sentence(self) -> str:
        """The result in plain words."""
        shares = ", ".join(
            f"{name} {tests.share_above(SIGNIFICANCE_LEVEL):.1%} of {tests.num_tested}"
            for name, tests in (
                ("histogram bins", self.histogram),
                ("wavenumbers", self.spectrum),
                ("Minkowski functionals", self.minkowski),
            )
        )
        return (
            f"{self.num_candidate} maps against {self.num_reference}: {self.verdict} (p = {self.adjusted:.2g} "
            f"after Bonferroni's correction); tests with p of {SIGNIFICANCE_LEVEL} or more, of equal sets about "
            f"{1 - SIGNIFICANCE_LEVEL:.0%}: {shares}; p of one pixel per map: {self.pixel_p_value:.2g}"
        )


def compare_maps(reference: NDArray[Any], candidate: NDArray[Any], *, seed: int = 2018) -> MapComparison:
    """Compares candidate maps (M, H, W) with reference maps (N, H, W), pixels in [-1, 1].

    Maps must be independent. Crops of one large map are not, if they overlap: p-values come out too small. What
    the data themselves give is the yardstick: compare one half of the reference with the other. Thresholds
    are in standard deviations of the reference's pixels from their mean, and the same for both sets. `seed` is
    that of the places where single pixels are taken.

    Raises ValueError if a set is not (N, H, W), not finite, not square, or the maps' sizes differ.
    """
    if reference.shape[1:] != candidate.shape[1:]:
        raise ValueError(f"maps of {reference.shape[1:]} and {candidate.shape[1:]} pixels cannot be compared")
    sets = (reference, candidate)
    bins = [pixel_counts(maps) for maps in sets]
    mean, deviation = float(reference.mean(dtype=np.float64)), float(reference.std(dtype=np.float64))
    thresholds = mean + deviation * np.array(THRESHOLDS)
    spectra = [power_spectra(maps) for maps in sets]
    functionals = [minkowski_functionals(maps, thresholds).reshape(len(maps), -1) for maps in sets]
    return MapComparison(
        num_reference=len(reference),
        num_candidate=len(candidate),
        pixel_p_value=ks_p_value(
            *(one_pixel_per_map(maps, seed=seed + place) for place, maps in enumerate(sets))
        ),
        pixel_count_p_value=count_vector_p_value(*bins),
        histogram=ks_tests(*(counts.astype(np.float64) for counts in bins)),
        spectrum=ks_tests(*spectra),
        minkowski=ks_tests(*functionals),
    )
