"""The facts of the maps, read from `settings.toml`: cosmology, source plane, and pixels. Sources are in that file.

Pixels lie in [-1, 1], the range of the generator's tanh: s = 2 x / (x + middle) - 1 with x = 1 + convergence /
shift, and back.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from dlscale.base.strings import Text


class Cosmology(BaseModel):
    """A flat universe with a cosmological constant, in CAMB's terms; densities are Omega h^2."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hubble_km_s_mpc: float
    ombh2: float
    omch2: float
    mnu_ev: float  # sum of the neutrinos' masses
    nnu: float  # effective number of neutrinos
    helium_fraction: float
    scalar_amplitude: float
    scalar_index: float
    nonlinear: Text  # CAMB's halofit_version


class Lensing(BaseModel):
    """The plane of the sources, and the lognormal shift: minus the smallest convergence that there can be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source_redshift: float
    lognormal_shift: float


class Map(BaseModel):
    """Side of a pixel, and full width at half maximum of the Gaussian that smooths."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pixel_arcmin: float
    smoothing_arcmin: float


class Pixels(BaseModel):
    """The transform of convergence to [-1, 1], see pixels.py."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    middle: float


class Settings(BaseModel):
    """All that a map depends on but its size and its random numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


def to_convergence(pixels: NDArray[Any], *, shift: float, middle: float) -> NDArray[Any]:
    """The convergence that `to_pixels` has made into `pixels`, in float64, for all below 1."""
    values = pixels.astype(np.float64)
    convergence: NDArray[Any] = shift * (middle * (1 + values) / (1 - values) - 1)
    return convergence
