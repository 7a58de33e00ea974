"""Weak-lensing convergence maps for CosmoGAN: lognormal fields with the power spectrum of a stated cosmology.

pip install camb==2.0.5
python examples/data/cosmology_maps.py maps.npy --maps 10000                 # 256 x 256 pixels, float32
python examples/data/cosmology_maps.py small.npy --maps 10000 --size 64 --dtype float16
dlscale run weak-scaling --workloads cosmogan --data maps.npy

The file holds (N, H, W) pixels s in [-1, 1), the range of the generator's tanh: s = 2 x / (x + 4) - 1 with x = 1 +
convergence / SHIFT; the form and 4 are those of github.com/vmos1/cosmogan_pytorch. Map i depends on size, seed and i
alone. The maps have the two-point statistics and about the skewness of lensing on one source plane; the higher orders
are those of a lognormal field and not of an N-body simulation. A. Lewis, A. Challinor, A. Lasenby, ApJ 538, 473 (2000).
"""

import argparse
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy import fft

# Best fit of Planck 2018 as CAMB ships it (inifiles/planck_2018.ini): flat, with a cosmological constant.
COSMOLOGY = {"H0": 67.32117, "ombh2": 0.0223828, "omch2": 0.1201075, "omk": 0, "mnu": 0.06, "nnu": 3.046}
HELIUM_FRACTION, SCALAR_AMPLITUDE, SCALAR_INDEX = 0.2454006, 2.100549e-9, 0.9660499
NONLINEAR = "mead2020"  # matter power by HMcode, arXiv:2009.01858
SOURCE_REDSHIFT = 1.0
# Minus the convergence of a line of sight without matter, of this redshift: S. Hilbert, J. Hartlap, P. Schneider, A&A
# 536, A85 (2011), arXiv:1105.3980, by the formula of glass.lognormal_shift_hilbert2011.
SHIFT = 0.02975
MIDDLE = 4.0  # of the transform to pixels
PIXEL = np.deg2rad(0.5 / 60)
SMOOTHING = (
    2 * PIXEL / np.sqrt(8 * np.log(2))
)  # standard deviation of a Gaussian, two pixels wide at half maximum
LIGHT_KM_S = 299_792.458
NUM_MULTIPOLES, NUM_DISTANCES = 160, 400  # four and two times as many change the power by 1e-4 and 1e-6
MAX_DEVIATION = 0.01  # of the spectrum that the fields have from the wanted one
MAPS_PER_THREAD = 16  # drawn ahead of the one that is written


def convergence_power(multipoles: np.ndarray) -> np.ndarray:
    """Power C(l) per steradian at multipoles l > 0; takes seconds.

    Limber's approximation in a flat universe, k = (l + 1/2) / chi (arXiv:0809.5112), with chi the comoving distance and
    s that of the sources (M. Bartelmann, P. Schneider, arXiv:astro-ph/9912508):

    C(l) = integral from 0 to s of [3/2 Omega_m (H0/c)^2 (1 + z) (s - chi) / s]^2 P(k, z) dchi
    """
    import camb

    params = camb.CAMBparams()
    params.set_cosmology(**COSMOLOGY, YHe=HELIUM_FRACTION)
    params.InitPower.set_params(As=SCALAR_AMPLITUDE, ns=SCALAR_INDEX)
    params.NonLinear = camb.model.NonLinear_both
    params.NonLinearModel.set_params(halofit_version=NONLINEAR)
    # Beyond the largest k CAMB goes on with a power law, which smoothing leaves a thousandth of.
    power = camb.get_matter_power_interpolator(
        params, zmax=SOURCE_REDSHIFT, kmax=10.0, extrap_kmax=1e5, hubble_units=False, k_hunit=False
    )
    background = camb.get_background(params)
    source = float(background.comoving_radial_distance(SOURCE_REDSHIFT))  # [Mpc]
    # The ends add nothing: at the source the weight is 0, at the observer the power is.
    distance = np.linspace(0, source, NUM_DISTANCES + 1)[1:-1]
    redshift = background.redshift_at_comoving_radial_distance(distance)
    scale = 1.5 * params.omegam * (COSMOLOGY["H0"] / LIGHT_KM_S) ** 2
    weight = scale * (1 + redshift) * (source - distance) / source
    nodes = np.geomspace(multipoles.min(), multipoles.max(), NUM_MULTIPOLES)
    integral = np.zeros_like(nodes)
    for chi, z, kernel in zip(distance, redshift, weight, strict=True):
        integral += kernel**2 * power.P(z, (nodes + 0.5) / chi)
    found = np.interp(np.log(multipoles), np.log(nodes), np.log(integral * (source / NUM_DISTANCES)))
    return np.exp(found)


class LognormalField:
    """Draws maps (size, size) of convergence kappa = SHIFT (exp(g - variance / 2) - 1), g a Gaussian field.

    A map is cut from a periodic grid of twice its side, so that its edges do not meet. kappa has mean 0 and the
    correlation xi = SHIFT^2 (exp(xi_g) - 1). Raises ValueError if no lognormal field has the spectrum.
    """

    def __init__(self, size: int, spectrum=convergence_power) -> None:
        side = self.side = 2 * size
        multipoles = 2 * np.pi * np.hypot(fft.fftfreq(side, PIXEL)[:, None], fft.rfftfreq(side, PIXEL))
        wanted, inside = np.zeros_like(multipoles), multipoles > 0  # power per pixel; 0 at frequency 0
        wanted[inside] = spectrum(multipoles[inside]) / PIXEL**2
        ratio = fft.irfft2(wanted, s=(side, side)) / SHIFT**2
        if ratio.min() <= -1:
            raise ValueError(
                f"somewhere the field is correlated by {ratio.min():.3g} SHIFT^2; the least is -1"
            )
        power = np.maximum(fft.rfft2(np.log1p(ratio)).real, 0)
        correlation = fft.irfft2(power, s=(side, side))
        reached = SHIFT**2 * fft.rfft2(np.expm1(correlation)).real
        deviation = np.max(np.abs(reached - wanted)[inside] / wanted[inside])
        if deviation > MAX_DEVIATION:
            raise ValueError(f"lognormal fields miss this spectrum by {deviation:.2%}")
        self.amplitude, self.variance = np.sqrt(power), float(correlation[0, 0])
        self.beam = np.exp(-0.5 * (multipoles * SMOOTHING) ** 2)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """The pixels of one map."""
        shape = (self.side, self.side)
        gaussian = fft.irfft2(fft.rfft2(rng.standard_normal(shape)) * self.amplitude, s=shape)
        sharp = SHIFT * np.expm1(gaussian - self.variance / 2)
        smooth = fft.irfft2(fft.rfft2(sharp) * self.beam, s=shape)[: self.side // 2, : self.side // 2]
        x = 1 + smooth / SHIFT
        return 2 * x / (x + MIDDLE) - 1


def write(
    path: Path, field: LognormalField, num_maps: int, *, dtype: str, seed: int, num_threads: int
) -> None:
    """The maps as a .npy file, drawn by threads: random numbers and transforms do not hold Python's lock."""

    def draw(index: int) -> np.ndarray:
        return field.draw(np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,))))

    stored = np.dtype(dtype).newbyteorder("<")
    shape = (num_maps, field.side // 2, field.side // 2)
    header = {"descr": np.lib.format.dtype_to_descr(stored), "fortran_order": False, "shape": shape}
    part, ahead = path.with_name(f".{path.name}.part"), num_threads * MAPS_PER_THREAD
    with part.open("wb") as file, ThreadPoolExecutor(num_threads) as pool:
        np.lib.format.write_array_header_1_0(file, header)
        for begin in range(0, num_maps, ahead):
            for pixels in pool.map(draw, range(begin, min(begin + ahead, num_maps))):
                file.write(pixels.astype(stored).tobytes())
    part.replace(path)


def main() -> None:
    """Prepare the field and write the maps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help=".npy file to write")
    parser.add_argument("--maps", type=int, default=1000)
    parser.add_argument("--size", type=int, default=256, help="pixels per side, each half an arc minute")
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32")
    parser.add_argument("--seed", type=int, default=2019)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="threads")
    asked = parser.parse_args()
    if asked.maps < 1 or not 8 <= asked.size <= 1024 or asked.out.suffix != ".npy":
        parser.error("give --maps 1 or more, --size 8 to 1024 and a file *.npy")
    field = LognormalField(asked.size)
    write(asked.out, field, asked.maps, dtype=asked.dtype, seed=asked.seed, num_threads=asked.jobs)


if __name__ == "__main__":
    main()
