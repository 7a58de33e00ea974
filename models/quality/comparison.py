"""Do two sets of maps look alike? CosmoGAN's statistics of simulated against generated maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlscale.models.quality.histogram import count_vector_p_value, one_pixel_per_map, pixel_counts
from dlscale.models.quality.ks import KsTests, ks_p_value, ks_tests
from dlscale.models.quality.minkowski import minkowski_functionals
from dlscale.models.quality.spectrum import power_spectra

LEVEL = 0.05
DIFFERENT = "different"
NO_DIFFERENCE = "no difference shown"

# In standard deviations from the mean. MustafaMustafa/cosmoGAN, slides/2017-05-16, figures minkowski_*: -1.9 to 1.7 in
# steps of 0.2, which with three functionals are the 57 tests that the slides count.
THRESHOLDS = tuple((2 * step - 19) / 10 for step in range(19))

# The same slides: p-values on count vectors, and how many tests reached them.
_PUBLISHED = (
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
        return DIFFERENT if self.adjusted < LEVEL else NO_DIFFERENCE

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
            for statistic, level, reached, of in _PUBLISHED
        ]

    def sentence(self) -> str:
        """The result in plain words."""
        shares = ", ".join(
            f"{name} {tests.share_above(LEVEL):.1%} of {tests.num_tested}"
            for name, tests in (
                ("histogram bins", self.histogram),
                ("wavenumbers", self.spectrum),
                ("Minkowski functionals", self.minkowski),
            )
        )
        return (
            f"{self.num_candidate} maps against {self.num_reference}: {self.verdict} (p = {self.adjusted:.2g} "
            f"after Bonferroni's correction); tests with p of {LEVEL} or more, of equal sets about "
            f"{1 - LEVEL:.0%}: {shares}; p of one pixel per map: {self.pixel_p_value:.2g}"
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
