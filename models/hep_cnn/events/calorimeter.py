"""A simple calorimeter and tracker: from particles to an image of an unrolled cylinder.

An image has shape (C, H, W): rows are pseudorapidity eta, columns azimuth phi, over the published ranges. Its
channels are transverse energy, its electromagnetic part, and the number of tracks. Transverse energy, not
energy, because it does not grow by itself towards the ends of the cylinder.

Collisions are seen one at a time, without pile-up. Photons and electrons leave all of their energy in the
electromagnetic part, hadrons in the hadronic one, muons none. A field of 2 T bends charged particles on their
way out to 1.15 m and keeps the softest from arriving. Resolutions are the design values of ATLAS.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CHANNELS = ("transverse energy", "electromagnetic transverse energy", "number of tracks")
MAX_ETA = 2.5
MAX_PHI = 3.15  # as published; a little more than pi, so the outermost columns are not quite filled

# Energies are read out as whole numbers of this, like those of any calorimeter with a digitiser. What rounds
# to zero is zero: the images are sparse, as real ones are after noise suppression.
LEAST_COUNT_GEV = 0.5
UNITS = (LEAST_COUNT_GEV, LEAST_COUNT_GEV, 1.0)  # of one count, per channel [GeV, GeV, tracks]
TRACK_MIN_PT_GEV = 1.0

_BEND_GEV = 0.3 * 2.0 * 1.15 / 2  # half of 0.3 B R: a particle of this pT just reaches the calorimeter
_MUON, _ELECTRON, _PHOTON = 13, 11, 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Particles:
    """Visible final particles of one collision, each array of shape (particles,)."""

    px: NDArray[np.float64]  # [GeV]
    py: NDArray[np.float64]
    pz: NDArray[np.float64]
    energy: NDArray[np.float64]
    charge: NDArray[np.float64]  # [e]
    pdg_id: NDArray[np.int64]


def image_counts(particles: Particles, *, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Digitised image (C, `size`, `size`) of one collision, in counts of `UNITS`."""
    pt = np.hypot(particles.px, particles.py)
    phi = np.arctan2(particles.py, particles.px)
    eta = np.arcsinh(particles.pz / np.maximum(pt, 1e-9))
    charged = particles.charge != 0

    tracks = _histogram(eta, phi, charged & (pt > TRACK_MIN_PT_GEV), size=size)

    kind = np.abs(particles.pdg_id)
    electromagnetic = (kind == _ELECTRON) | (kind == _PHOTON)
    arrives = ~charged | (pt > _BEND_GEV)
    bend = np.where(charged, particles.charge * np.arcsin(np.minimum(_BEND_GEV / np.maximum(pt, 1e-9), 1)), 0)
    deposit = _smeared(particles.energy, electromagnetic, rng=rng) * pt / np.hypot(pt, particles.pz)
    hit_phi = np.remainder(phi - bend + np.pi, 2 * np.pi) - np.pi

    readout = [
        np.rint(_histogram(eta, hit_phi, arrives & part, size=size, weights=deposit) / LEAST_COUNT_GEV)
        for part in (electromagnetic, ~electromagnetic & (kind != _MUON))
    ]
    return np.stack([readout[0] + readout[1], readout[0], tracks]).astype(np.int64)


def _smeared(
    energy: NDArray[np.float64], electromagnetic: NDArray[np.bool_], *, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Energies as measured [GeV]: sigma = a sqrt(E) in quadrature with b E, and never negative."""
    a = np.where(electromagnetic, 0.10, 0.50)
    b = np.where(electromagnetic, 0.007, 0.03)
    sigma = np.sqrt(a**2 * energy + (b * energy) ** 2)
    return np.maximum(energy + sigma * rng.standard_normal(len(energy)), 0)


def _histogram(
    eta: NDArray[np.float64],
    phi: NDArray[np.float64],
    mask: NDArray[np.bool_],
    *,
    size: int,
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Sum of `weights` (without them, the number of entries) per cell, shape (`size`, `size`)."""
    mask = mask & (np.abs(eta) < MAX_ETA)
    rows, columns = (
        # An angle within rounding of the upper edge belongs to the last cell.
        np.minimum((angle[mask] / limit + 1) / 2 * size, size - 1).astype(np.int64)
        for angle, limit in ((eta, MAX_ETA), (phi, MAX_PHI))
    )
    cells = np.bincount(
        rows * size + columns, weights=None if weights is None else weights[mask], minlength=size * size
    )
    return cells.reshape(size, size).astype(np.float64)
