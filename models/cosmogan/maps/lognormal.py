"""Shifted lognormal fields with the power spectrum of convergence of a stated cosmology.

Fields are flat, square and periodic. kappa = shift (exp(g - variance / 2) - 1), with g a Gaussian field, has mean 0
and never falls below -shift. Its correlation function is xi = shift^2 (exp(xi_g) - 1). The angular power spectrum
comes from CAMB's matter power. CAMB is the optional extra `science`, imported only here and on demand: A. Lewis, A.
Challinor, A. Lasenby, ApJ 538, 473 (2000), arXiv:astro-ph/9911177.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from dlscale.base.errors import UsageError
from dlscale.models.cosmogan.maps.settings import Cosmology, Settings

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


def load_camb() -> ModuleType:
    """CAMB's Python module. Raises UsageError if it is not installed."""
    try:
        return importlib.import_module("camb")
    except ModuleNotFoundError as error:
        if error.name != "camb":
            raise
        raise UsageError(
            "making convergence maps needs CAMB, which is not installed; pip install camb"
        ) from None


def camb_parameters(cosmology: Cosmology) -> Any:
    """`camb.CAMBparams` of a cosmology, with nonlinear matter power."""
    camb = load_camb()
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
    camb = load_camb()
    params = camb_parameters(settings.cosmology)
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
        power: Floats = np.exp(np.interp(np.log(multipoles), log_nodes, log_power))
        return power

    return spectrum


_MAX_DEVIATION = 0.01  # of the spectrum that the fields have from the wanted one, at any frequency but 0
_FWHM = np.sqrt(8 * np.log(2))  # of a Gaussian, over its standard deviation


@dataclass(frozen=True, slots=True, kw_only=True)
class LognormalField:
    """Draws smoothed lognormal maps (size, size) from periodic grids of twice their side; made by `prepare`.

    Cut from a grid of twice the side, no two pixels of a map are nearer to each other around the grid's edge
    than within the map.
    """

    size: int
    shift: float
    variance: float  # of the Gaussian field
    amplitude: Floats  # of the Gaussian field, by frequency as rfft2 has them: (2 size, size + 1)
    beam: Floats  # what smoothing leaves of every frequency's amplitude, same shape

    def draw(self, rng: np.random.Generator) -> Floats:
        """The convergence of one map, (size, size)."""
        return self.draw_grid(rng)[: self.size, : self.size]

    def draw_grid(self, rng: np.random.Generator) -> Floats:
        """The convergence of a whole periodic grid, (2 size, 2 size)."""
        shape = (2 * self.size, 2 * self.size)
        # White noise through the amplitudes: Hermitian as it must be, with nothing to think of at the edges.
        gaussian = fft.irfft2(fft.rfft2(rng.standard_normal(shape)) * self.amplitude, s=shape)
        sharp = self.shift * np.expm1(gaussian - self.variance / 2)
        smooth: Floats = fft.irfft2(fft.rfft2(sharp) * self.beam, s=shape)
        return smooth


def prepare_field(
    spectrum: Spectrum, *, size: int, pixel_arcmin: float, smoothing_arcmin: float, shift: float
) -> LognormalField:
    """The field whose grids have, before they are smoothed, the power `spectrum` at all frequencies but 0.

    `smoothing_arcmin` is the full width at half maximum of a Gaussian. Raises ValueError if no lognormal field
    with this shift has the spectrum.
    """
    multipoles = grid_multipoles(size, pixel_arcmin)
    pixel = np.deg2rad(pixel_arcmin / 60)
    side = 2 * size
    wanted = np.zeros_like(multipoles)  # power per pixel; 0 at frequency 0
    wanted[multipoles > 0] = spectrum(multipoles[multipoles > 0]) / pixel**2
    ratio = fft.irfft2(wanted, s=(side, side)) / shift**2
    if ratio.min() <= -1:
        raise ValueError(
            f"no lognormal field with shift {shift} has this spectrum: somewhere it is correlated by "
            f"{ratio.min():.3g} shift^2, and can be by more than -1 only"
        )
    # At frequency 0 less than nothing may be wanted; elsewhere hardly, which is what the check is for.
    power = np.maximum(fft.rfft2(np.log1p(ratio)).real, 0)
    correlation = fft.irfft2(power, s=(side, side))
    reached = shift**2 * fft.rfft2(np.expm1(correlation)).real
    deviation = np.abs(reached - wanted)[multipoles > 0] / wanted[multipoles > 0]
    if deviation.max() > _MAX_DEVIATION:
        raise ValueError(
            f"lognormal fields with shift {shift} miss this spectrum by {100 * deviation.max():.2g} %, "
            f"more than {100 * _MAX_DEVIATION:g} %"
        )
    sigma = np.deg2rad(smoothing_arcmin / 60) / _FWHM
    return LognormalField(
        size=size,
        shift=shift,
        variance=float(correlation[0, 0]),
        amplitude=np.sqrt(power),
        beam=np.exp(-0.5 * (multipoles * sigma) ** 2),
    )


def grid_multipoles(size: int, pixel_arcmin: float) -> Floats:
    """The multipoles of a map's grid, 2 pi over the wavelength in radians, as rfft2 orders them; one is 0."""
    pixel = np.deg2rad(pixel_arcmin / 60)
    side = 2 * size
    multipoles: Floats = 2 * np.pi * np.hypot(fft.fftfreq(side, pixel)[:, None], fft.rfftfreq(side, pixel))
    return multipoles


def multipole_range(size: int, pixel_arcmin: float) -> tuple[float, float]:
    """The smallest multipole above 0, and the largest, of a map's grid."""
    multipoles = grid_multipoles(size, pixel_arcmin)
    return float(multipoles[0, 1]), float(multipoles.max())
