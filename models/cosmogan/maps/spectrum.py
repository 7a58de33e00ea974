"""The angular power spectrum of convergence, from CAMB's matter power.

CAMB is the optional extra `science`, imported only here and on demand: A. Lewis, A. Challinor, A. Lasenby,
ApJ 538, 473 (2000), arXiv:astro-ph/9911177.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.cosmogan.maps.settings import Cosmology, Settings
from dlscale.models.errors import UsageError

Floats = NDArray[np.float64]
Spectrum = Callable[[Floats], Floats]
"""Power C(l) per steradian at multipoles l > 0, an array of any shape."""

_LIGHT_KM_S = 299_792.458
# How fine: against four times the nodes the power changes by 1e-4, against twice the distances by 1e-6. Beyond
# the largest k CAMB goes on with a power law: against 50 / Mpc that changes 0.05 % at l = 4,500, 0.4 % at 10,000
# and 3 % at 21,000, where smoothing leaves a thousandth of it.
_NUM_MULTIPOLES = 160
_NUM_DISTANCES = 400
_MAX_K_PER_MPC = 10.0
_MAX_K_EXTRAPOLATED_PER_MPC = 1e5


def load() -> ModuleType:
    """CAMB's Python module. Raises UsageError if it is not installed."""
    try:
        return importlib.import_module("camb")
    except ModuleNotFoundError as error:
        if error.name != "camb":
            raise
        raise UsageError(
            "making convergence maps needs CAMB, which is not installed; pip install camb"
        ) from None


def parameters(cosmology: Cosmology) -> Any:
    """`camb.CAMBparams` of a cosmology, with nonlinear matter power."""
    camb = load()
    params = camb.CAMBparams()
    params.set_cosmology(
        H0=cosmology.hubble_km_s_mpc,
        ombh2=cosmology.ombh2,
        omch2=cosmology.omch2,
        omk=0,
        mnu=cosmology.mnu_ev,
        nnu=cosmology.nnu,
        YHe=cosmology.helium_fraction,
    )
    params.InitPower.set_params(As=cosmology.scalar_amplitude, ns=cosmology.scalar_index)
    params.NonLinear = camb.model.NonLinear_both
    params.NonLinearModel.set_params(halofit_version=cosmology.nonlinear)
    return params


def convergence_spectrum(settings: Settings, multipoles: tuple[float, float]) -> Spectrum:
    """The spectrum of convergence for sources on one plane, between two multipoles; takes seconds.

    Limber's approximation in a flat universe, with k = (l + 1/2) / chi (M. LoVerde, N. Afshordi, Phys. Rev. D
    78, 123506 (2008), arXiv:0809.5112), chi the comoving distance, s the sources' (M. Bartelmann, P. Schneider,
    Phys. Rep. 340, 291 (2001), arXiv:astro-ph/9912508):

    C(l) = integral from 0 to s of [3/2 Omega_m (H0/c)^2 (1 + z) (s - chi) / s]^2 P(k, z) dchi

    Raises UsageError if CAMB is not installed.
    """
    camb = load()
    params = parameters(settings.cosmology)
    redshift = settings.lensing.source_redshift
    power = camb.get_matter_power_interpolator(
        params,
        zmax=redshift,
        kmax=_MAX_K_PER_MPC,
        extrap_kmax=_MAX_K_EXTRAPOLATED_PER_MPC,
        hubble_units=False,
        k_hunit=False,
    )
    background = camb.get_background(params)
    source = float(background.comoving_radial_distance(redshift))  # [Mpc]
    # The ends add nothing: at the source the weight is 0, at the observer P is, for its k is infinite.
    distance = np.linspace(0, source, _NUM_DISTANCES + 1)[1:-1]
    z = background.redshift_at_comoving_radial_distance(distance)
    hubble_per_mpc = settings.cosmology.hubble_km_s_mpc / _LIGHT_KM_S
    weight = 1.5 * params.omegam * hubble_per_mpc**2 * (1 + z) * (source - distance) / source

    low, high = multipoles
    nodes = np.geomspace(low, high, _NUM_MULTIPOLES)
    integral = np.zeros_like(nodes)
    for chi, redshift_there, kernel in zip(distance, z, weight, strict=True):
        integral += kernel**2 * power.P(redshift_there, (nodes + 0.5) / chi)
    return interpolated(nodes, integral * (source / _NUM_DISTANCES))


def interpolated(nodes: Floats, power: Floats) -> Spectrum:
    """The spectrum that is a power law between nodes; outside of them ValueError is raised."""
    log_nodes, log_power = np.log(nodes), np.log(power)

    def spectrum(multipoles: Floats) -> Floats:
        # Equal ends may differ in their last bit after a logarithm and back.
        inside = (multipoles >= nodes[0] * (1 - 1e-12)) & (multipoles <= nodes[-1] * (1 + 1e-12))
        if not np.all(inside):
            raise ValueError(
                f"the spectrum is known for l from {nodes[0]:g} to {nodes[-1]:g}, asked for "
                f"{np.min(multipoles):g} to {np.max(multipoles):g}"
            )
        found: Floats = np.exp(np.interp(np.log(multipoles), log_nodes, log_power))
        return found

    return spectrum
