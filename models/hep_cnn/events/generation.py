"""Generates a file of collision events: `dlscale data hep-cnn --events N --out FILE`."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dlscale.models.errors import UsageError
from dlscale.models.hep_cnn.events import pythia, writer
from dlscale.models.hep_cnn.events.block import Block, BlockDone, make, start_worker
from dlscale.models.hep_cnn.events.components import (
    Component,
    load_components,
    share_events,
    share_preselected_events,
)

IMAGE_SIZES = (64, 224)
DEFAULT_SEED = 2018
_EVENTS_PER_BLOCK = 250  # some 3 s, against 0.4 s in which PYTHIA starts
_EVENTS_PER_PRESELECTED_BLOCK = 1000  # as such files need many events, PYTHIA starts more seldom


def generate(
    num_events: int,
    out: Path,
    *,
    image_size: int = 64,
    seed: int = DEFAULT_SEED,
    num_processes: int = 1,
    preselected: bool = False,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Generates `num_events` collisions and writes them to the HDF5 file `out`; writer.py says what is in it.

    Returns the number of events in the file. Half are signal, half background, in random order. With `preselected`
    only those that pass the preselection of the physics selection are written, and components.toml has the shares
    of the components. The content depends on `num_events`, `image_size`, `seed` and `preselected` only.
    `progress` is called with the number of events that have come since its last call. The work is done in
    processes of its own, so the caller's main module must be importable (`__name__` guard).

    Until the file is complete it lies, with its parts, in a hidden folder beside `out`, which goes away on
    any failure and on Ctrl-C. Raises UsageError for an impossible wish, without PYTHIA, if no signal or no
    background passes the preselection, or if the file cannot be written.
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

    blocks = list(_plan(num_events, components, image_size=image_size, seed=seed, preselected=preselected))
    try:
        with (
            tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch,
            _workers(min(num_processes, len(blocks))) as pool,
        ):
            done = _make_all(pool, blocks, Path(scratch), progress=progress)
            _check_kept(done)
            whole = Path(scratch) / "whole.h5"
            # In a worker too, because that ends at once on Ctrl-C.
            pool.submit(
                writer.write,
                whole,
                done,
                row_seed=np.random.SeedSequence(seed, spawn_key=(len(components),)),
                command=f"dlscale data hep-cnn --events {num_events} --size {image_size} --seed {seed}"
                + (" --preselected" if preselected else ""),
            ).result()
            _publish(whole, out)
            return sum(each.num_kept for each in done)
    except BrokenProcessPool:
        raise UsageError(
            f"a worker process died while making {out}, perhaps for want of memory; ask for fewer --jobs"
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot write {out}: {_reason(error)}; choose another --out or free some space"
        ) from error


def _plan(
    num_events: int, components: tuple[Component, ...], *, image_size: int, seed: int, preselected: bool
) -> Iterator[Block]:
    """Cuts every component's events into blocks, the last of which may be smaller."""
    share = share_preselected_events if preselected else share_events
    per_block = _EVENTS_PER_PRESELECTED_BLOCK if preselected else _EVENTS_PER_BLOCK
    for index, (component, events) in enumerate(zip(components, share(num_events, components), strict=True)):
        for number, begin in enumerate(range(0, events, per_block)):
            yield Block(
                component=component,
                seed=seed,
                stream=(index, number),
                num_events=min(per_block, events - begin),
                image_size=image_size,
                preselected=preselected,
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


def _check_kept(done: list[BlockDone]) -> None:
    for label, kind in ((1, "signal"), (0, "background")):
        of_kind = [each for each in done if each.block.component.label == label]
        if not any(each.num_kept for each in of_kind):
            raise UsageError(
                f"none of {sum(each.block.num_events for each in of_kind)} {kind} events passes the preselection; "
                "ask for more --events"
            )


def _publish(whole: Path, out: Path) -> None:
    """Gives the finished file its name, once it is safely on the disk."""
    with whole.open("rb+") as file:
        os.fsync(file.fileno())
    whole.replace(out)


def _reason(error: OSError) -> str:
    """The operating system's words; HDF5 wraps them in lines of its own."""
    return os.strerror(error.errno) if error.errno else " ".join(str(error).split())
