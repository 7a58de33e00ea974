"""Collisions from PYTHIA 8, and the published physics selection on their jets that a network is compared with.

PYTHIA's module is the optional extra `science`, imported only here and on demand. PYTHIA: C. Bierlich et al.,
SciPost Phys. Codebases 8 (2022), arXiv:2203.11601. Its jets are found by the part of FastJet that it contains: M.
Cacciari, G. P. Salam, G. Soyez, arXiv:1111.6097. The cuts on fat jets follow ATLAS' searches for R-parity violation
in multi-jet events, with the values of github.com/eracah/atlas_dl, scripts/physics_selections.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.hep_cnn.events.calorimeter import Particles
from dlscale.models.hep_cnn.events.components import Component

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


NUM_SEEDS = 900_000_000  # PYTHIA takes seeds from 1 to this
_MAX_FAILURES = 20  # in a row; PYTHIA gives up a collision now and then, which is no fault

# Arguments of SlowJet. Jets may reach beyond the image: the selection belongs to the whole detector.
_ANTI_KT, _ACCEPTANCE_ETA, _VISIBLE, _OWN_MASSES = -1, 4.9, 2, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Collision:
    """One collision as a perfect detector sees it; jet arrays have shape (jets,), in descending pT."""

    particles: Particles
    jet_pt: NDArray[np.float64]  # [GeV]
    jet_eta: NDArray[np.float64]
    jet_mass: NDArray[np.float64]  # [GeV]


def load() -> ModuleType:
    """PYTHIA's Python module. Raises UsageError if it is not installed."""
    try:
        return importlib.import_module("pythia8mc")
    except ModuleNotFoundError as error:
        if error.name != "pythia8mc":
            raise
        raise UsageError(
            "generating collision events needs PYTHIA 8, which is not installed; "
            "pip install 'dlscale[science]'"
        ) from None


def start(component: Component, *, seed: int) -> Any:
    """An initialised `pythia8mc.Pythia` for one component. `seed` is from 1 to `NUM_SEEDS`.

    Raises RuntimeError if PYTHIA refuses a setting or cannot start: both are faults of ours.
    """
    pythia = load().Pythia("", False)
    for setting in (*component.settings, "Print:quiet = on", "Random:setSeed = on", f"Random:seed = {seed}"):
        if not pythia.readString(setting):
            raise RuntimeError(f"PYTHIA does not know the setting {setting!r} of component {component.name}")
    if component.slha_path:
        pythia.settings.word("SLHA:file", str(component.slha_path))
    if not pythia.init():
        raise RuntimeError(f"PYTHIA cannot start component {component.name} with {component.settings}")
    return pythia


def collisions(pythia: Any) -> Iterator[Collision]:
    """Endless collisions. Raises RuntimeError if PYTHIA keeps failing."""
    find_jets = load().SlowJet(_ANTI_KT, JET_RADIUS, JET_MIN_PT_GEV, _ACCEPTANCE_ETA, _VISIBLE, _OWN_MASSES)
    failures = 0
    while failures < _MAX_FAILURES:
        if not pythia.next():
            failures += 1
            continue
        failures = 0
        find_jets.analyze(pythia.event)
        yield Collision(particles=_visible(pythia.event), **_jets(find_jets))
    raise RuntimeError(f"PYTHIA failed {failures} times in a row")


def _visible(event: Any) -> Particles:
    rows = np.array(
        [(p.px(), p.py(), p.pz(), p.e(), p.charge(), p.id()) for p in event if p.isFinal() and p.isVisible()]
    )
    px, py, pz, energy, charge, pdg_id = rows.T
    return Particles(px=px, py=py, pz=pz, energy=energy, charge=charge, pdg_id=pdg_id.astype(np.int64))


def _jets(find_jets: Any) -> dict[str, NDArray[np.float64]]:
    momenta = [find_jets.p(jet) for jet in range(find_jets.sizeJet())]
    return {
        "jet_pt": np.array([p.pT() for p in momenta]),
        "jet_eta": np.array([p.eta() for p in momenta]),
        "jet_mass": np.array([p.mCalc() for p in momenta]),
    }
