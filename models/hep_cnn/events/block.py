"""A block of events of one component: the unit of work of a worker process.

A block has its own seeds and its own PYTHIA, so it comes out the same whichever process makes it and whatever
that process made before: PYTHIA adapts its sampling while it runs, and a reseeded one would remember.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlscale.models.hep_cnn.events import calorimeter, pythia
from dlscale.models.hep_cnn.events.components import Component
from dlscale.models.hep_cnn.events.pythia import in_signal_region, passes_preselection


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The events to generate."""

    component: Component
    seed: int  # of the file
    stream: tuple[int, int]  # index of the component, index of the block within the component
    num_events: int  # to generate
    image_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDone:
    """A block that lies in its .npz file. `max_counts` has shape (C,) and is over all events and cells."""

    block: Block
    path: Path
    max_counts: NDArray[np.int64]
    pythia_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event: its image (C, H, W) in counts, and what the physics selection makes of its jets."""

    image: NDArray[np.int64]
    preselection: bool
    psr: bool


def start_worker(lifeline: Connection) -> None:
    """Prepares a worker process: silent, and gone as soon as the other end of `lifeline` is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the jet finder greets from C++, past any setting
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    lifeline.poll(None)
    os._exit(1)


def make(block: Block, path: Path) -> BlockDone:
    """Generates a block into the new file `path`, as the cells that are not zero.

    Raises UsageError without PYTHIA, OSError if the file cannot be written.
    """
    shower, detector = np.random.SeedSequence(block.seed, spawn_key=block.stream).spawn(2)
    generator = pythia.start(block.component, seed=int(shower.generate_state(1)[0]) % pythia.NUM_SEEDS + 1)
    rng = np.random.default_rng(detector)
    cells, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    preselection, psr = [], []
    max_counts = np.zeros(len(calorimeter.CHANNELS), dtype=np.int64)
    for collision in islice(pythia.collisions(generator), block.num_events):
        image = calorimeter.image_counts(collision.particles, size=block.image_size, rng=rng)
        cells.append(np.flatnonzero(image))
        counts.append(image.reshape(-1)[cells[-1]])
        preselection.append(passes_preselection(collision.jet_pt, collision.jet_eta))
        psr.append(in_signal_region(collision.jet_pt, collision.jet_eta, collision.jet_mass))
        max_counts = np.maximum(max_counts, image.max(axis=(1, 2)))
    np.savez_compressed(
        path,
        cells=np.concatenate(cells).astype(np.uint32),
        counts=np.concatenate(counts).astype(np.uint32),
        num_cells=np.array([len(event) for event in cells[1:]], dtype=np.int64),
        preselection=np.array(preselection, dtype=np.bool_),
        psr=np.array(psr, dtype=np.bool_),
    )
    return BlockDone(
        block=block,
        path=path,
        max_counts=max_counts,
        pythia_version=f"{generator.parm('Pythia:versionNumber'):.3f}",
    )


def read(done: BlockDone) -> Iterator[Event]:
    """The block's events, in order."""
    size = done.block.image_size
    with np.load(done.path, allow_pickle=False) as stored:
        columns = {name: stored[name] for name in stored}
    cells, counts, num_cells = columns["cells"], columns["counts"], columns["num_cells"]
    ends = np.cumsum(num_cells)
    for event, (begin, end) in enumerate(zip(ends - num_cells, ends, strict=True)):
        image = np.zeros((len(calorimeter.CHANNELS), size, size), dtype=np.int64)
        image.reshape(-1)[cells[begin:end]] = counts[begin:end]
        yield Event(
            image=image, preselection=bool(columns["preselection"][event]), psr=bool(columns["psr"][event])
        )
