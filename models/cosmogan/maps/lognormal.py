"""Shifted lognormal fields on a flat, square, periodic grid, with a power spectrum that is given.

kappa = shift (exp(g - variance / 2) - 1), with g a Gaussian field, has mean 0 and never falls below -shift. Its
correlation function is xi = shift^2 (exp(xi_g) - 1) (P. Coles, B. Jones, MNRAS 248, 1 (1991)). So the one that g
needs is xi_g = log(1 + xi / shift^2), taken on the very grid on which the fields are drawn: what they have in the
mean is then the wanted spectrum, and no transform between angles and multipoles adds an error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import fft

from dlscale.models.cosmogan.maps.spectrum import Floats, Spectrum

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


def prepare(
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
    found = shift**2 * fft.rfft2(np.expm1(correlation)).real
    deviation = np.abs(found - wanted)[multipoles > 0] / wanted[multipoles > 0]
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
