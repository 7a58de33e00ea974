"""The universal scalability law, which knows no mechanism, as a rival of predictions in their validation:

    efficiency(N) = 1 / (1 + a (N - 1) + b N (N - 1))

The law is fitted to a published curve's first three sizes and asked for the largest; predictions are fitted to none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit

from dlscale.analysis.published.claim_verdicts import EfficiencyPoint

FITTED_POINTS = 3
Floats = NDArray[np.float64]


def law_efficiency(size: Floats, contention: float, coherency: float) -> Floats:
    """The law's efficiency at `size` times the base."""
    return 1 / (1 + contention * (size - 1) + coherency * size * (size - 1))


def law_fit(curve: list[EfficiencyPoint], base: float) -> float | None:
    """The law's efficiency of the last point, fitted to the first ones; None where there are too few below it."""
    if len(curve) <= FITTED_POINTS:
        return None
    fitted, last = curve[:FITTED_POINTS], curve[-1]
    size = np.array([point.x / base for point in fitted])
    efficiency = np.array([point.efficiency for point in fitted])
    (contention, coherency), _ = curve_fit(
        law_efficiency, size, efficiency, p0=(1e-3, 1e-6), bounds=(0.0, 1.0)
    )
    (predicted,) = law_efficiency(np.array([last.x / base]), float(contention), float(coherency))
    return float(predicted)
