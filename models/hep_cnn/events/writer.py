"""Writes blocks of events as one HDF5 file in the layout of the published data set.

`data` (N, C, H, W) float32, each channel divided by its maximum over the file; `label` (N), 1 for signal;
`weight` (N), the cross section [mb] that an event stands for: that of its component over the number of the
component's events that were generated; `normweight` (N), the same scaled to a mean of 1 over the signal and 1 over
the background, so that both kinds count alike; `psr` (N), 1 if the event passes the physics selection. Ours are
`component` (N), an index into the attributes `components`, `component_labels`, `component_cross_sections_mb`,
`component_generated` (events generated) and `component_events` (of them, in this file); and `preselection` (N), 1 if
the event passes the preselection. A file of preselected events holds no others: then the last two numbers differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from dlscale.models.hep_cnn.events import block, calorimeter
from dlscale.models.hep_cnn.events.components import Component


def write(
    path: Path, blocks: Sequence[block.BlockDone], *, row_seed: np.random.SeedSequence, command: str
) -> None:
    """Writes the events of all blocks to `path`, their rows in an order drawn from `row_seed`.

    Raises OSError if the disk is full.
    """
    num_events = sum(done.num_kept for done in blocks)
    size = blocks[0].block.image_size
    max_counts = np.max([done.max_counts for done in blocks], axis=0)
    # A channel that is empty in the whole file stays zero.
    divisors = np.maximum(max_counts, 1).astype(np.float32)[:, None, None]
    rows = np.random.default_rng(row_seed).permutation(num_events)

    components = _components(blocks)
    generated = [_num_generated(blocks, component) for component in components]
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
        """Sets the size in bytes."""
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


def _num_generated(blocks: Sequence[block.BlockDone], component: Component) -> int:
    return sum(done.block.num_events for done in blocks if done.block.component == component)


def _num_kept(blocks: Sequence[block.BlockDone], component: Component) -> int:
    return sum(done.num_kept for done in blocks if done.block.component == component)


def _normalised(weight: NDArray[np.float64], label: NDArray[np.int64]) -> NDArray[np.float64]:
    means = np.array([weight[label == kind].mean() for kind in (0, 1)])
    normalised: NDArray[np.float64] = weight / means[label]
    return normalised


def _provenance(
    blocks: Sequence[block.BlockDone], *, max_counts: NDArray[np.int64], command: str
) -> dict[str, object]:
    """What a reader needs to make the file again, and to turn its images back into GeV."""
    components = _components(blocks)
    slha = [
        component.slha_path.read_text(encoding="utf-8") for component in components if component.slha_path
    ]
    kept, shares = (
        ("those that pass the preselection", "by the preselected_share of components.toml")
        if blocks[0].block.preselected
        else ("all", "half signal, half background, the background equal over its slices")
    )
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
        "component_events": [_num_kept(blocks, component) for component in components],
        "component_generated": [_num_generated(blocks, component) for component in components],
        "component_cross_sections_mb": [component.cross_section_mb for component in components],
        "component_settings": ["\n".join(component.settings) for component in components],
        "slha": "\n".join(slha),
        "weight": "cross section of the event's component [mb] / number of its events generated",
        "normweight": "weight, scaled to mean 1 over the signal and mean 1 over the background",
        "composition": f"generated: {shares}; kept: {kept}; random order",
    }
