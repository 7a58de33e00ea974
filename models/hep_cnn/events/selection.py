"""The published physics selection that a network is compared with.

Cuts on fat jets in the manner of ATLAS' searches for R-parity violation in multi-jet events, with the values
of github.com/eracah/atlas_dl, scripts/physics_selections.py. Fat jets are anti-kT jets of radius 1.0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

JET_RADIUS = 1.0
JET_MIN_PT_GEV = 200.0
JET_MAX_ETA = 2.0


def passes_preselection(pt: NDArray[np.float64], eta: NDArray[np.float64]) -> bool:
    """Whether an event has three or more fat jets, the leading one with 440 GeV or more.

    `pt` [GeV] and `eta` have shape (jets,), in descending order of `pt`. The published selection calls this its
    baseline; efficiencies are given for the events that pass it.
    """
    pt = pt[_fat(pt, eta)]
    return bool(len(pt) >= 3 and pt[0] >= 440.0)


def in_signal_region(pt: NDArray[np.float64], eta: NDArray[np.float64], mass: NDArray[np.float64]) -> bool:
    """Whether an event passes the preselection and lies in the signal region.

    `pt` [GeV], `eta`, `mass` [GeV] have shape (jets,), in descending order of `pt`.
    """
    if not passes_preselection(pt, eta):
        return False
    fat = _fat(pt, eta)
    pt, eta, mass = pt[fat], eta[fat], mass[fat]
    if len(pt) < 4 or abs(eta[0] - eta[1]) >= 1.4:
        return False
    min_mass_sum_gev = 800.0 if len(pt) == 4 else 600.0
    return bool(mass[:4].sum() > min_mass_sum_gev)


def _fat(pt: NDArray[np.float64], eta: NDArray[np.float64]) -> NDArray[np.bool_]:
    return (pt > JET_MIN_PT_GEV) & (np.abs(eta) < JET_MAX_ETA)
