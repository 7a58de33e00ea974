"""Generates a file of collision events, in the layout of the published data set: `dlscale data hep-cnn --events N`.

`data` (N, C, H, W) float32, each channel divided by its maximum over the file; `label` (N), 1 for signal; `weight`
(N), the cross section [mb] that an event stands for.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.hep_cnn.events import block, calorimeter, pythia
from dlscale.models.hep_cnn.events.block import Block, BlockDone, make, start_worker
from dlscale.models.hep_cnn.events.components import Component, load_components, share_events


def write_events(
    path: Path, blocks: Sequence[block.BlockDone], *, row_seed: np.random.SeedSequence, command: str
) -> None:
    """Writes the events of all blocks to `path`, their rows in an order drawn from `row_seed`.

    Raises OSError if the disk is full.
    """
    num_events = sum(done.block.num_events for done in blocks)
    size = blocks[0].block.image_size
    max_counts = np.max([done.max_counts for done in blocks], axis=0)
    # A channel that is empty in the whole file stays zero.
    divisors = np.maximum(max_counts, 1).astype(np.float32)[:, None, None]
    rows = np.random.default_rng(row_seed).permutation(num_events)

    components = _components(blocks)
    generated = [_num_events(blocks, component) for component in components]
    label = np.zeros(num_events, dtype=np.int64)
    number = np.zeros(num_events, dtype=np.uint8)
    weight = np.zeros(num_events, dtype=np.float64)
    preselection, psr = np.zeros(num_events, dtype=np.uint8), np.zeros(num_events, dtype=np.uint8)
    with _Storage(path) as storage, h5py.File(storage, "w") as file:
        image_shape = (len(calorimeter.CHANNELS), size, size)
        data = file.create_dataset(
            "data",
            (num_events, *image_shape),
            np.float32,
            chunks=(1, *image_shape),
            # No byte shuffle: most cells hold one of a few counts, so whole floats repeat, and splitting
            # their bytes doubles the size.
            compression="gzip",
        )
        event = 0
        for done in blocks:
            component = done.block.component
            place = components.index(component)
            for kept in block.read(done):
                row = rows[event]
                data[row] = kept.image.astype(np.float32) / divisors
                storage.check()
                label[row], number[row] = component.label, place
                preselection[row], psr[row] = kept.preselection, kept.psr
                weight[row] = component.cross_section_mb / generated[place]
                event += 1
        for name, column in {
            "label": label,
            "weight": weight,
            "normweight": _normalised(weight, label),
            "psr": psr,
            "component": number,
            "preselection": preselection,
        }.items():
            file.create_dataset(name, data=column, compression="gzip", shuffle=True)
        file.attrs.update(_provenance(blocks, max_counts=max_counts, command=command))


class _Storage(FileIO):
    """A new file that seems to take every write, and raises the first failure when checked or left.

    After a write that failed, HDF5 may crash the process, at once or when it exits (seen with 2.0).
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "x+")
        self._error: OSError | None = None

    def write(self, data: Any) -> int:
        """Writes all of `data`, bytes, and returns their number."""
        rest = memoryview(data)
        try:
            while rest and not self._error:
                rest = rest[super().write(rest) :]  # a disk about to be full takes a part
        except OSError as error:
            self._error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self._error = self._error or error
            return size or 0

    def check(self) -> None:
        """Raises the OSError of the first write that failed."""
        if self._error:
            raise self._error

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self.check()


def _components(blocks: Sequence[block.BlockDone]) -> list[Component]:
    """In the order of the blocks."""
    return list({done.block.component.name: done.block.component for done in blocks}.values())


def _num_events(blocks: Sequence[block.BlockDone], component: Component) -> int:
    return sum(done.block.num_events for done in blocks if done.block.component == component)


def _normalised(weight: NDArray[np.float64], label: NDArray[np.int64]) -> NDArray[np.float64]:
    means = np.array([weight[label == kind].mean() for kind in (0, 1)])
    normalised: NDArray[np.float64] = weight / means[label]
    return normalised


def _provenance(
    blocks: Sequence[block.BlockDone], *, max_counts: NDArray[np.int64], command: str
) -> dict[str, object]:
    """All that is needed to make the file again, and to turn its images back into GeV."""
    components = _components(blocks)
    slha = [
        component.slha_path.read_text(encoding="utf-8") for component in components if component.slha_path
    ]
    num_events = [_num_events(blocks, component) for component in components]
    return {
        "command": command,
        "generator": f"PYTHIA {blocks[0].pythia_version}",
        "seed": blocks[0].block.seed,
        "channels": list(calorimeter.CHANNELS),
        "channel_maxima": max_counts * calorimeter.UNITS,
        "channel_units": ["GeV", "GeV", "tracks"],
        "least_count_gev": calorimeter.LEAST_COUNT_GEV,
        "track_min_pt_gev": calorimeter.TRACK_MIN_PT_GEV,
        "eta_range": (-calorimeter.MAX_ETA, calorimeter.MAX_ETA),
        "phi_range": (-calorimeter.MAX_PHI, calorimeter.MAX_PHI),
        "components": [component.name for component in components],
        "component_labels": [component.label for component in components],
        "component_events": num_events,
        "component_generated": num_events,
        "component_cross_sections_mb": [component.cross_section_mb for component in components],
        "component_settings": ["\n".join(component.settings) for component in components],
        "slha": "\n".join(slha),
        "weight": "cross section of the event's component [mb] / number of its events generated",
        "normweight": "weight, scaled to mean 1 over the signal and mean 1 over the background",
        "composition": (
            "generated: half signal, half background, the background equal over its slices; kept: all; random order"
        ),
    }


IMAGE_SIZES = (64, 224)
DEFAULT_SEED = 2018
_EVENTS_PER_BLOCK = 250  # some 3 s, against 0.4 s in which PYTHIA starts


def generate(
    num_events: int,
    out: Path,
    *,
    image_size: int = 64,
    seed: int = DEFAULT_SEED,
    num_processes: int = 1,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Generates `num_events` collisions and writes them to the HDF5 file `out` (see the top of this module).

    Half are signal, half background, in random order. The content depends on `num_events`, `image_size` and `seed`
    only. `progress` is called with the number of events that have come since its last call. The work is done in
    processes of its own, so the caller's main module must be importable (`__name__` guard).

    Until the file is complete it lies, with its parts, in a hidden folder beside `out`, which goes away on any failure
    and on Ctrl-C. Raises UsageError for an impossible wish, without PYTHIA, or if the file cannot be written.
    """
    components = load_components()
    if image_size not in IMAGE_SIZES:
        raise UsageError(
            f"no {image_size}x{image_size} images; choose --size {' or '.join(map(str, IMAGE_SIZES))}"
        )
    min_events = 2 * (len(components) - 1)
    if num_events < min_events:
        raise UsageError(
            f"{num_events} events are too few for one of each background slice; "
            f"ask for at least --events {min_events}"
        )
    if seed < 0 or num_processes < 1:
        raise UsageError(
            f"seed {seed} with {num_processes} processes: a seed is at least 0, the processes at least 1"
        )
    if out.is_dir() or (out.exists() and not overwrite):
        raise UsageError(f"{out} exists; choose another --out, or remove it first")
    pythia.load()

    blocks = list(_plan(num_events, components, image_size=image_size, seed=seed))
    try:
        with (
            tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch,
            _workers(min(num_processes, len(blocks))) as pool,
        ):
            done = _make_all(pool, blocks, Path(scratch), progress=progress)
            whole = Path(scratch) / "whole.h5"
            # In a worker too, because that ends at once on Ctrl-C.
            pool.submit(
                write_events,
                whole,
                done,
                row_seed=np.random.SeedSequence(seed, spawn_key=(len(components),)),
                command=f"dlscale data hep-cnn --events {num_events} --size {image_size} --seed {seed}",
            ).result()
            _publish(whole, out)
    except BrokenProcessPool:
        raise UsageError(
            f"a worker process died while making {out}, perhaps for want of memory; ask for fewer --jobs"
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot write {out}: {_reason(error)}; choose another --out or free some space"
        ) from error


def _plan(
    num_events: int, components: tuple[Component, ...], *, image_size: int, seed: int
) -> Iterator[Block]:
    """Cuts every component's events into blocks, the last of which may be smaller."""
    shares = share_events(num_events, components)
    for index, (component, events) in enumerate(zip(components, shares, strict=True)):
        for number, begin in enumerate(range(0, events, _EVENTS_PER_BLOCK)):
            yield Block(
                component=component,
                seed=seed,
                stream=(index, number),
                num_events=min(_EVENTS_PER_BLOCK, events - begin),
                image_size=image_size,
            )


@contextmanager
def _workers(num_processes: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that have all ended afterwards; at once, if it is an exception that leads there."""
    lifeline, held = multiprocessing.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        num_processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=start_worker,
        initargs=(lifeline,),
    )
    try:
        yield pool
        pool.shutdown()
    finally:
        held.close()
        pool.shutdown(cancel_futures=True)
        lifeline.close()


def _make_all(
    pool: ProcessPoolExecutor, blocks: list[Block], scratch: Path, *, progress: Callable[[int], None] | None
) -> list[BlockDone]:
    """All blocks, each in a file of its own under `scratch`, in the order given."""
    pending = [pool.submit(make, block, scratch / f"{place}.npz") for place, block in enumerate(blocks)]
    for future in as_completed(pending):
        num_events = future.result().block.num_events
        if progress:
            progress(num_events)
    return [future.result() for future in pending]


def _publish(whole: Path, out: Path) -> None:
    """Gives the finished file its name, once it is safely on the disk."""
    with whole.open("rb+") as file:
        os.fsync(file.fileno())
    whole.replace(out)


def _reason(error: OSError) -> str:
    """The operating system's words; HDF5 wraps them in lines of its own."""
    return os.strerror(error.errno) if error.errno else " ".join(str(error).split())
