"""The facts of the maps, read from `settings.toml`: cosmology, source plane, and pixels. Sources are in that file.

Pixels lie in [-1, 1], the range of the generator's tanh: s = 2 x / (x + middle) - 1 with x = 1 + convergence /
shift.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlscale.base.definitions import Frozen
from dlscale.base.strings import Text


class Cosmology(Frozen):
    """A flat universe with a cosmological constant, in CAMB's terms; densities are Omega h^2."""

    hubble_km_s_mpc: float
    ombh2: float
    omch2: float
    mnu_ev: float  # sum of the neutrinos' masses
    nnu: float  # effective number of neutrinos
    helium_fraction: float
    scalar_amplitude: float
    scalar_index: float
    nonlinear: Text  # CAMB's halofit_version


class Lensing(Frozen):
    """The plane of the sources, and the lognormal shift: minus the smallest convergence that there can be."""

    source_redshift: float
    lognormal_shift: float


class Map(Frozen):
    """Side of a pixel, and full width at half maximum of the Gaussian that smooths."""

    pixel_arcmin: float
    smoothing_arcmin: float


class Pixels(Frozen):
    """The transform of convergence to [-1, 1]."""

    middle: float


class Settings(Frozen):
    """All that a map depends on but its size and its random numbers."""

    cosmology: Cosmology
    lensing: Lensing
    map: Map
    pixels: Pixels


def load_settings() -> Settings:
    """The settings that all files are made with."""
    text = Path(__file__).with_name("settings.toml").read_text(encoding="utf-8")
    return Settings.model_validate(tomllib.loads(text))


def to_pixels(convergence: NDArray[Any], *, shift: float, middle: float) -> NDArray[Any]:
    """Pixels in [-1, 1) of convergence of -`shift` or more; -1 is a line of sight without matter."""
    x = 1 + convergence / shift
    pixels: NDArray[Any] = 2 * x / (x + middle) - 1
    return pixels
