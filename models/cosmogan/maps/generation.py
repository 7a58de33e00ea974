"""Generates a file of convergence maps: `dlscale data cosmogan --maps N --out FILE.npy`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.metadata import version
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.cosmogan.maps import lognormal
from dlscale.models.cosmogan.maps.settings import Settings, load_settings, to_pixels

DEFAULT_SEED = 2019
DTYPES = ("float32", "float16")
MIN_SIZE, MAX_SIZE = 8, 1024  # pixels a side; 1024 are 8.5 degrees, of a sky that is taken to be flat
_MAPS_PER_THREAD = 16  # drawn ahead of the one that is written


def generate(
    num_maps: int,
    out: Path,
    *,
    size: int = 256,
    dtype: str = "float32",
    seed: int = DEFAULT_SEED,
    num_threads: int = 1,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Writes `num_maps` maps of pixels in [-1, 1] to `out`, (N, `size`, `size`), and beside it their provenance.

    `out` is a .npy file, its provenance `<out>.json`: cosmology, transform, seed and versions. Map i depends on
    `size`, `seed` and i only, on one machine bit by bit, however many maps and threads there are. `progress` is
    called with the number of maps that have come since its last call.

    Until they are complete, both lie in a hidden folder beside `out`, which goes away on any failure and on
    Ctrl-C. Raises UsageError for an impossible wish, without CAMB, or if the files cannot be written.
    """
    _check(num_maps, out, size=size, dtype=dtype, seed=seed, num_threads=num_threads)
    sidecar = sidecar_of(out)
    for path in (out, sidecar):
        if path.is_dir() or (path.exists() and not overwrite):
            raise UsageError(f"{path} exists; choose another --out, or pass --overwrite to replace the file")
    settings = load_settings()
    lognormal.load_camb()
    try:
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
            field = prepare(settings, size)
            whole, about = Path(scratch) / "whole.npy", Path(scratch) / "whole.json"
            drawn = _draw_all(field, settings, num_maps, seed=seed, num_threads=num_threads)
            with closing(drawn) as maps, whole.open("xb", buffering=0) as file:
                _write(file, maps, shape=(num_maps, size, size), dtype=np.dtype(dtype), progress=progress)
            command = (
                f"dlscale data cosmogan --maps {num_maps} --size {size} --dtype {dtype} --seed {seed} "
                f"--out {out.name}"
            )
            with about.open("x", encoding="utf-8") as text:
                text.write(json.dumps(_provenance(settings, size, command=command), indent=2) + "\n")
                text.flush()
                os.fsync(text.fileno())
            about.replace(sidecar)
            whole.replace(out)
    except OSError as error:
        raise UsageError(
            f"cannot write {out}: {error.strerror or error}; choose another --out or free some space"
        ) from error


def sidecar_of(path: Path) -> Path:
    """Where the provenance of the maps in `path` is."""
    return path.with_name(f"{path.name}.json")


def prepare(settings: Settings, size: int) -> lognormal.LognormalField:
    """The field that maps of `size` x `size` pixels are drawn from; takes seconds. Raises UsageError without CAMB."""
    pixel = settings.map.pixel_arcmin
    return lognormal.prepare_field(
        lognormal.convergence_spectrum(settings, lognormal.multipole_range(size, pixel)),
        size=size,
        pixel_arcmin=pixel,
        smoothing_arcmin=settings.map.smoothing_arcmin,
        shift=settings.lensing.lognormal_shift,
    )


def draw_map(field: lognormal.LognormalField, settings: Settings, *, seed: int, index: int) -> NDArray[Any]:
    """Map `index` of `seed`, pixels in [-1, 1), (H, W) float64."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))
    return to_pixels(field.draw(rng), shift=field.shift, middle=settings.pixels.middle)


def _check(num_maps: int, out: Path, *, size: int, dtype: str, seed: int, num_threads: int) -> None:
    if num_maps < 1 or not MIN_SIZE <= size <= MAX_SIZE:
        raise UsageError(
            f"{num_maps} maps of {size}x{size} pixels: ask for --maps 1 or more and --size {MIN_SIZE} to {MAX_SIZE}"
        )
    if dtype not in DTYPES:
        raise UsageError(f"no maps of type {dtype!r}; choose --dtype {' or '.join(DTYPES)}")
    if seed < 0 or num_threads < 1:
        raise UsageError(
            f"seed {seed} with {num_threads} threads: a seed is at least 0, the threads at least 1"
        )
    if out.suffix != ".npy":
        raise UsageError(f"{out} does not end in .npy, by which maps in a folder are found; rename --out")


def _draw_all(
    field: lognormal.LognormalField, settings: Settings, num_maps: int, *, seed: int, num_threads: int
) -> Generator[NDArray[Any], None, None]:
    """All maps in order. Threads suffice: random numbers and transforms do not hold Python's lock."""
    ahead = num_threads * _MAPS_PER_THREAD  # so that memory does not grow with the number of maps
    with ThreadPoolExecutor(num_threads) as pool:
        for begin in range(0, num_maps, ahead):
            yield from pool.map(
                lambda index: draw_map(field, settings, seed=seed, index=index),
                range(begin, min(begin + ahead, num_maps)),
            )


def _write(
    file: FileIO,
    maps: Iterator[NDArray[Any]],
    *,
    shape: tuple[int, int, int],
    dtype: np.dtype[Any],
    progress: Callable[[int], None] | None,
) -> None:
    """A .npy file, durable on return. Not by a memory map: on a full disk that ends the process."""
    stored = dtype.newbyteorder("<")
    header = {"descr": np.lib.format.dtype_to_descr(stored), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    for pixels_of_map in maps:
        rest = memoryview(pixels_of_map.astype(stored).tobytes())
        while rest:
            rest = rest[file.write(rest) :]  # a disk about to be full takes a part
        if progress:
            progress(1)
    os.fsync(file.fileno())


def _provenance(settings: Settings, size: int, *, command: str) -> dict[str, object]:
    """All that is needed to make the file again, and to turn its pixels back into convergence."""
    shift, middle = settings.lensing.lognormal_shift, settings.pixels.middle
    return {
        "command": command,
        "field": "shifted lognormal, power spectrum of convergence from CAMB in Limber's approximation",
        "field_degrees": size * settings.map.pixel_arcmin / 60,
        "pixels": f"s = 2 x / (x + {middle:g}) - 1 with x = 1 + convergence / {shift:g}",
        "convergence": f"{shift:g} ({middle:g} (1 + s) / (1 - s) - 1)",
        "settings": settings.model_dump(),
        "versions": {name: version(name) for name in ("dlscale", "camb", "numpy", "scipy")},
    }
