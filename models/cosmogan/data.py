"""CosmoGAN's data, as `samples.DataModule` asks for it: `.npy` files of convergence maps, or folders of them.

Pixels are in about [-1, 1], the range of the generator's tanh; map_files.py says how files are laid out, and that
larger maps are cut into tiles. The sample that ships with dlscale was made by
`dlscale data cosmogan --maps 32 --dtype float16 --out models/cosmogan/sample_256.npy`; the file beside it,
`sample_256.npy.json`, says what it shows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dlscale.models.cosmogan import FLIP_PROBABILITY, LATENT_SIZE
from dlscale.models.cosmogan.map_files import MapFiles, find_files, open_map_file
from dlscale.models.errors import UsageError
from dlscale.models.samples import Arrays
from dlscale.models.workload import Input, Preset

_SAMPLE = Path(__file__).with_name("sample_256.npy")
_SAMPLE_SIZE = 256


def default_input(preset: Preset) -> Input:
    """The maps that ship with dlscale. Raises UsageError if they cannot be cut into the preset's size."""
    _, height, width = preset.input_shape
    if _SAMPLE_SIZE % height or _SAMPLE_SIZE % width:
        raise UsageError(
            f"preset {preset.name} of cosmogan needs maps of {height}x{width} pixels, into which the shipped ones of "
            f"{_SAMPLE_SIZE}x{_SAMPLE_SIZE} cannot be cut; {_remedy(preset)} and pass it as --data FILE.npy "
            "(make ... DATA=FILE.npy)"
        )
    return Input(path=_SAMPLE)


def check_input(source: Input, preset: Preset, *, num_samples: int = 1) -> None:
    """Returns if `source` can feed the preset. Cheap: only the files' headers and sizes are read.

    Raises UsageError if a file is missing, is not .npy, is cut off (but not if bad samples are to be skipped and
    one map is whole), has another type, or maps that do not divide into the preset's size, or if all files
    together hold fewer than `num_samples` samples.
    """
    if source.path is None:
        return
    samples = _open(source.path, preset, cut_off=source.skip_bad)
    if samples.num_whole < num_samples:
        raise UsageError(
            f"{source.path}: needs at least {num_samples} samples, one global batch of preset {preset.name}, "
            f"found {samples.num_whole}; take smaller batches or fewer ranks, or {_remedy(preset)}"
        )


def open_samples(source: Input, preset: Preset, *, seed: tuple[int, int]) -> MapFiles:  # noqa: ARG001
    """The maps of `source`, open for reading. Nothing about reading them is random. Raises UsageError."""
    if source.path is None:
        raise ValueError("synthetic input has no file to open")
    return _open(source.path, preset, cut_off=source.skip_bad)


def synthetic_batch(preset: Preset, local_batch: int, rng: np.random.Generator) -> Arrays:
    """Uniform noise in [-1, 1), (N, H, W, 1) float32."""
    _, height, width = preset.input_shape
    noise = rng.random((local_batch, height, width, 1), dtype=np.float32)
    return (2 * noise - 1,)


def step_inputs(preset: Preset, local_batch: int, rng: np.random.Generator, *, gate: bool) -> Arrays:  # noqa: ARG001
    """What a step draws: the generator's input z (N, latent) float32, standard normal, and `flip` (1,) float32.

    `flip` is 1 where real and generated change their labels for the whole local batch, else 0; with `gate`
    always 0, while z is drawn nevertheless, for without it there is nothing to generate from.
    """
    z = rng.standard_normal((local_batch, LATENT_SIZE), dtype=np.float32)
    flip = not gate and rng.random() < FLIP_PROBABILITY
    return z, np.array([flip], dtype=np.float32)


def _open(path: Path, preset: Preset, *, cut_off: bool) -> MapFiles:
    files = [open_map_file(file, cut_off=cut_off) for file in find_files(path)]
    _, height, width = preset.input_shape
    for file in files:
        found = file.maps.shape[1:]
        if found[0] % height or found[1] % width:
            raise UsageError(
                f"{file.path}: preset {preset.name} needs maps of {height}x{width} pixels or multiples of that, "
                f"found {found[0]}x{found[1]}; choose another --preset, or {_remedy(preset)}"
            )
    return MapFiles(files, (height, width))


def _remedy(preset: Preset) -> str:
    size = preset.input_shape[-1]
    return f"make a file with `dlscale data cosmogan --size {size} --maps N --out FILE.npy`"
