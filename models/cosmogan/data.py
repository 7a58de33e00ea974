"""CosmoGAN's data, as `samples.DataModule` asks for it: `.npy` files of convergence maps, or folders of them.

Files hold (N, H, W) or (N, H, W, 1), float32 as published or float16, and are mapped into memory. Maps larger than
wanted are cut into tiles where the size divides, each a sample of its own: sample i of a file is tile i % T of map
i // T. Pixels are in about [-1, 1], the range of the generator's tanh.

The sample that ships with dlscale is of `examples/data/cosmology_maps.py sample_256.npy --maps 32 --dtype float16`.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.cosmogan import FLIP_PROBABILITY, LATENT_SIZE
from dlscale.models.parallel import Rows
from dlscale.models.samples import Arrays, BadSample, part_files
from dlscale.models.workload import Input, Preset

_DTYPES = (np.float32, np.float16)
_MAGIC = b"\x93NUMPY"
_MOST_LOST = 1000  # maps for each whole one of a file that is cut off; beyond, it is the header that is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class MapFile:
    """One file of maps. `maps` (`num_whole`, H, W) is a view of the file; fewer than `num_maps` if it is cut off."""

    path: Path
    num_maps: int  # by its header
    maps: NDArray[Any]

    @property
    def num_whole(self) -> int:
        """How many maps the file really holds."""
        return len(self.maps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A sample's place: the map, and the row and column at which what is read of the tile begins."""

    file: MapFile
    number: int
    top: int
    left: int


class MapFiles:
    """Maps of several files in one row, cut into tiles (H, W) = `tile`, or `rows` of them: a `samples.Samples`.

    `len()` of it is the number of tiles that the headers promise, `num_whole` that of those that are there.
    Raises ValueError if a file's maps cannot be cut into such tiles.
    """

    def __init__(self, files: Sequence[MapFile], tile: tuple[int, int], rows: Rows | None = None) -> None:
        self._files, self._tile = tuple(files), tile
        self._rows = range(tile[0])[slice(None) if rows is None else rows.own(tile[0])]
        for file in files:
            height, width = file.maps.shape[1:]
            if height % tile[0] or width % tile[1]:
                raise ValueError(f"{file.path}: {height}x{width} pixels are not tiles of {tile[0]}x{tile[1]}")
        self._ends = np.cumsum([file.num_maps * self._num_tiles(file) for file in files])
        self.num_whole = sum(file.num_whole * self._num_tiles(file) for file in files)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def skip(self, count: int) -> None:
        """Nothing is drawn at random: maps are read as they are."""

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.float32]]:
        """(N, H, W, 1) float32 of the N tiles `indices`, in that order; repeats are allowed.

        Raises BadSample for one with a pixel that is not a finite number or, in a file that is cut off, is not
        there; IndexError for one that does not exist.
        """
        tiles = np.empty((len(indices), len(self._rows), self._tile[1], 1), dtype=np.float32)
        for place, index in enumerate(indices):
            tiles[place, :, :, 0] = self._pixels(self._find(int(index)))
        if not np.isfinite(tiles).all():
            bad = int(np.isfinite(tiles).all(axis=(1, 2, 3)).argmin())
            raise self._not_finite(int(indices[bad]))
        return (tiles,)

    def _num_tiles(self, file: MapFile) -> int:
        height, width = file.maps.shape[1:]
        return int(height // self._tile[0]) * int(width // self._tile[1])

    def _find(self, index: int) -> _Place:
        if not 0 <= index < len(self):
            raise IndexError(f"no sample {index}; there are {len(self)}")
        which = int(np.searchsorted(self._ends, index, side="right"))
        file = self._files[which]
        begin = int(self._ends[which - 1]) if which else 0
        number, tile = divmod(index - begin, self._num_tiles(file))
        if number >= file.num_whole:
            raise BadSample(
                f"{file.path}: map {number} of {file.num_maps} is cut off, the file has {file.num_whole} whole ones; "
                "copy it again, or set skip_bad",
                index=index,
            )
        row, column = divmod(tile, file.maps.shape[2] // self._tile[1])
        top = row * self._tile[0] + self._rows.start
        return _Place(file=file, number=number, top=top, left=column * self._tile[1])

    def _pixels(self, place: _Place) -> NDArray[Any]:
        pixels: NDArray[Any] = place.file.maps[
            place.number, place.top : place.top + len(self._rows), place.left : place.left + self._tile[1]
        ]
        return pixels

    def _not_finite(self, index: int) -> BadSample:
        place = self._find(index)
        pixels = self._pixels(place)
        row, column = np.argwhere(~np.isfinite(pixels))[0].tolist()
        return BadSample(
            f"{place.file.path}: map {place.number} has {pixels[row, column]} at row {place.top + row}, column "
            f"{place.left + column}; mend the file, or set skip_bad to leave such maps out",
            index=index,
        )


def find_files(path: Path) -> list[Path]:
    """The file `path`, or the .npy files of the folder `path` in the order of their names. Raises UsageError."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(
            f"{path}: need a .npy file of maps, or a folder of them, and found none of that name; check --data"
        )
    files = part_files(path, lambda name: name.lower().endswith(".npy"))
    if not files:
        raise UsageError(f"{path}: need .npy files of maps and found none in this folder; check --data")
    return files


def open_map_file(path: Path, *, cut_off: bool = False) -> MapFile:
    """A file of maps, mapped into memory; nothing but its header is read.

    Raises UsageError if it cannot be opened, is not a .npy file, holds another type or shape, or has another size
    than its header says. With `cut_off` it may be too short, if one map is whole.
    """
    try:
        shape, dtype, fortran, offset = _read_header(path)
        size = path.stat().st_size
        _check_type(path, shape, dtype)
        num_maps, map_bytes = shape[0], math.prod(shape[1:]) * dtype.itemsize
        expected = offset + num_maps * map_bytes
        num_whole = min((size - offset) // map_bytes, num_maps)
        if num_maps > _MOST_LOST * max(num_whole, 1):
            raise UsageError(
                f"{path}: its header promises {num_maps} maps and it has {num_whole}: the header is damaged; copy or "
                "make it again"
            )
        if size > expected or (size < expected and (fortran or not cut_off or not num_whole)):
            raise UsageError(
                f"{path}: its header promises {num_maps} maps, {expected} bytes, and it has {size}"
                + (f", so map {num_whole} is cut off" if size < expected else "")
                + "; copy or make it again"
                + (", or set skip_bad" if size < expected and num_whole and not fortran else "")
            )
        shape = (num_whole, *shape[1:])
        held = np.memmap(path, dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); check --data") from error
    maps = np.asarray(
        held
    )  # a plain view of it: np.memmap's own indexing costs more than copying a small tile
    return MapFile(path=path, num_maps=num_maps, maps=maps[..., 0] if maps.ndim == 4 else maps)


def _read_header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any], bool, int]:
    """Shape, type, Fortran order, and the byte at which the pixels begin."""
    if not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise UsageError(f"{path}: is not a .npy file; check --data")
        file.seek(0)
        try:
            major, _ = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
        except OSError:
            raise
        except Exception as error:  # a damaged header makes NumPy's parser raise many kinds
            reason = " ".join(str(error).split())
            raise UsageError(
                f"{path}: its .npy header cannot be read ({reason}); copy or make it again"
            ) from error
        return shape, dtype, fortran, file.tell()


def _check_type(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if dtype.newbyteorder("=") not in _DTYPES:
        raise UsageError(f"{path}: maps must be float32 or float16, found {dtype}; convert them")
    if len(shape) not in (3, 4) or shape[3:] not in ((), (1,)) or min(shape) < 1:
        sizes = ", ".join(map(str, shape))
        raise UsageError(
            f"{path}: maps must be (N, H, W) or (N, H, W, 1) with N of 1 or more, found ({sizes}); reshape them"
        )


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


def open_samples(
    source: Input,
    preset: Preset,
    *,
    seed: tuple[int, int] | None,  # noqa: ARG001
    rows: Rows | None = None,
) -> MapFiles:
    """The maps of `source`, or `rows` of them, open for reading. Nothing about it is random. Raises UsageError."""
    if source.path is None:
        raise ValueError("synthetic input has no file to open")
    return _open(source.path, preset, cut_off=source.skip_bad, rows=rows)


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


def _open(path: Path, preset: Preset, *, cut_off: bool, rows: Rows | None = None) -> MapFiles:
    files = [open_map_file(file, cut_off=cut_off) for file in find_files(path)]
    _, height, width = preset.input_shape
    for file in files:
        size = file.maps.shape[1:]
        if size[0] % height or size[1] % width:
            raise UsageError(
                f"{file.path}: preset {preset.name} needs maps of {height}x{width} pixels or multiples of that, "
                f"found {size[0]}x{size[1]}; choose another --preset, or {_remedy(preset)}"
            )
    return MapFiles(files, (height, width), rows)


def _remedy(preset: Preset) -> str:
    size = preset.input_shape[-1]
    return f"make a file with examples/data/cosmology_maps.py FILE.npy --size {size} --maps N"
