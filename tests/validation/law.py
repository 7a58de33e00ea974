"""The universal scalability law, which knows no mechanism, as a rival of predictions in their validation:

    efficiency(N) = 1 / (1 + a (N - 1) + b N (N - 1))

The law is fitted to a published curve's first three sizes and asked for the largest; predictions are fitted to none.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import curve_fit

FITTED_POINTS = 3
Floats = NDArray[np.float64]


def law_efficiency(size: Floats, contention: float, coherency: float) -> Floats:
    """The law's efficiency at `size` times the base."""
    return 1 / (1 + contention * (size - 1) + coherency * size * (size - 1))


def law_fit(curve: pd.DataFrame, base: float) -> float | None:
    """The law's efficiency at the last `x`, fitted to the first ones; None where there are too few below it."""
    if len(curve) <= FITTED_POINTS:
        return None
    size, efficiency = curve["x"].to_numpy() / base, curve["efficiency"].to_numpy()
    (contention, coherency), _ = curve_fit(
        law_efficiency, size[:FITTED_POINTS], efficiency[:FITTED_POINTS], p0=(1e-3, 1e-6), bounds=(0.0, 1.0)
    )
    (predicted,) = law_efficiency(size[-1:], float(contention), float(coherency))
    return float(predicted)
