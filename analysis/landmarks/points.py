"""Published efficiencies beyond a curve's base, and the universal scalability law, which knows no mechanism:

    efficiency(N) = 1 / (1 + a (N - 1) + b N (N - 1))

The law is fitted to a curve's first three sizes and asked for the largest; predictions are fitted to none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit

from dlscale.analysis.published.catalogue import Published
from dlscale.analysis.published.values import HALF_WIDTH

FITTED_POINTS = 3
_ABOUT = 0.005  # efficiencies in words are rounded to a percent
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An efficiency as published at `x` of the figure's axis; `half_width` is rounding or scatter, also of the base."""

    x: float
    efficiency: float
    half_width: float


def points(published: Published, figure: str, series: str, *, base: float) -> list[Point]:
    """The published efficiencies beyond the base, ascending: from throughputs, as printed, or in words."""
    rows = [row for row in published.values_of(figure) if row.series == series and row.x]
    throughput, scatter, efficiency = (
        {row.x: row for row in rows if row.x and row.quantity == quantity}
        for quantity in ("throughput", f"throughput{HALF_WIDTH}", "efficiency")
    )
    if throughput:
        per_device = throughput[base].y / base
        # Relative, and added: both ends of a ratio are uncertain.
        error = {x: (scatter[x].y if x in scatter else row.rounding) / row.y for x, row in throughput.items()}
        found = [
            (x, row.y / x / per_device, (error[x] + error[base]) * row.y / x / per_device)
            for x, row in throughput.items()
        ]
    elif efficiency:
        found = [(x, row.y, row.rounding) for x, row in efficiency.items()]
    else:
        found = [
            (row.x_high, row.band[0], _ABOUT)
            for row in published.statements_of(figure)
            if (row.series, row.quantity) == (series, "efficiency") and row.x_high and row.band[0] is not None
        ]
    return [Point(x=x, efficiency=y, half_width=half) for x, y, half in sorted(found) if x > base]


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """The universal scalability law, fitted to a curve's first points and asked for its last one."""

    point: Point
    predicted: float


def law_efficiency(size: Floats, contention: float, coherency: float) -> Floats:
    """The law's efficiency at `size` times the base."""
    return 1 / (1 + contention * (size - 1) + coherency * size * (size - 1))


def law_fit(curve: list[Point], base: float) -> LawFit | None:
    """The law's prediction of the largest point; None where there are too few below it."""
    if len(curve) <= FITTED_POINTS:
        return None
    fitted, last = curve[:FITTED_POINTS], curve[-1]
    size = np.array([point.x / base for point in fitted])
    efficiency = np.array([point.efficiency for point in fitted])
    (contention, coherency), _ = curve_fit(
        law_efficiency, size, efficiency, p0=(1e-3, 1e-6), bounds=(0.0, 1.0)
    )
    (predicted,) = law_efficiency(np.array([last.x / base]), float(contention), float(coherency))
    return LawFit(point=last, predicted=float(predicted))
