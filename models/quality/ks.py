"""Kolmogorov-Smirnov tests of a statistic that is measured on every map, feature by feature.

A feature is one number per map: the power at a wavenumber, the area above a threshold. Two sets of maps are two
samples of it, and maps, unlike pixels, are independent: on equal distributions p-values are uniform in [0, 1].

The published values for CosmoGAN, most of them above 0.99, cannot be of that kind. For pixels the published validation
code (azrael417/cosmoGAN, branch wgan-distributed, validation.py) gives `ks_2samp` the two vectors of a histogram's
counts, and for the other statistics we take it to have been the same: the figures show histograms per feature, and two
sets of 4000 equal Gaussian maps come out about as published, smaller ones lower. That compares how often a count
occurs and not where: it calls a distribution and the same one shifted equal. It is computed here too, under its own
name; nothing is decided by it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        return _share(self.p_values, level)

    def count_share_above(self, level: float) -> float:
        """The same for the p-values on count vectors."""
        return _share(self.count_p_values, level)


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


def _share(p_values: NDArray[np.float64], level: float) -> float:
    tested = p_values[~np.isnan(p_values)]
    return float(np.mean(tested >= level)) if len(tested) else 1.0
