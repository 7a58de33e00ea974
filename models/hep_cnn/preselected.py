"""Preselected events for the comparison with the physics selection: reading, splitting, and writing for training.

Background comes in slices of pT with cross sections sigma_s. Of the n_s events generated in a slice, the file holds
those that passed the preselection, and each of them stands for sigma_s / n_s.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from dlscale.models.errors import UsageError
from dlscale.models.hep_cnn.event_files import EventFile, Images

_ROWS_PER_READ = 128
_COLUMNS = ("component", "preselection", "psr")
_ATTRIBUTES = ("components", "component_labels", "component_generated", "component_cross_sections_mb")

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreselectedEvents:
    """Events of a file, by their rows, and the K components that they come from. Images stay in the file."""

    path: Path
    rows: Rows  # (N,) ascending
    component: Rows  # (N,)
    psr: NDArray[np.bool_]  # (N,) passes the physics selection
    names: tuple[str, ...]  # (K,)
    component_labels: Rows  # (K,) 1 for signal
    num_generated: Rows  # (K,) events of which these are the preselected ones
    cross_sections_mb: NDArray[np.float64]  # (K,)

    @property
    def labels(self) -> Rows:
        """(N,), 1 for signal and 0 for background."""
        return self.component_labels[self.component]

    @property
    def weights_mb(self) -> NDArray[np.float64]:
        """(N,), the cross section [mb] that each event stands for."""
        return (self.cross_sections_mb / self.num_generated)[self.component]

    @property
    def num_present(self) -> Rows:
        """(K,), events of each component."""
        return np.bincount(self.component, minlength=len(self.names))

    def subset(self, chosen: Rows) -> PreselectedEvents:
        """The events `chosen`, positions below N, as the part of the generated ones that they are.

        A component's generated events are divided in proportion, so that its efficiency stays what it was; one
        at least is left to every component.
        """
        chosen = np.sort(chosen)
        part = replace(self, rows=self.rows[chosen], component=self.component[chosen], psr=self.psr[chosen])
        share = np.where(
            self.num_present > 0,
            part.num_present / np.maximum(self.num_present, 1),
            len(chosen) / max(len(self.rows), 1),
        )
        num_generated = np.maximum(np.rint(self.num_generated * share), 1).astype(np.int64)
        return replace(part, num_generated=num_generated)

    def images(self) -> Iterator[Images]:
        """The images of all events in order, a few at a time, (n, H, W, C)."""
        with EventFile(self.path) as file:
            for begin in range(0, len(self.rows), _ROWS_PER_READ):
                yield file.read(self.rows[begin : begin + _ROWS_PER_READ])[0]


def default_path() -> Path:
    """Where the events of the comparison are kept: in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "dlscale" / "hep_cnn" / "preselected_64.h5"


def load_events(path: Path, *, max_events: int | None = None) -> PreselectedEvents:
    """The events of a generated file that pass the preselection; of more than `max_events`, the first ones.

    Raises UsageError if the file cannot be read, does not say where its events come from, or has no signal or no
    background.
    """
    with EventFile(path) as events, h5py.File(path, "r") as file:
        num_events = len(events)
        missing = [name for name in _COLUMNS if name not in file]
        missing += [name for name in _ATTRIBUTES if name not in file.attrs]
        if missing:
            raise UsageError(
                f"{path}: has no {', '.join(missing)}, which the comparison with the physics selection needs; "
                "make a file with `dlscale data hep-cnn --preselected`"
            )
        component, preselection, psr = (file[name][()] for name in _COLUMNS)
        names, labels, generated, sigma = (np.asarray(file.attrs[name]) for name in _ATTRIBUTES)
        fits = all(column.shape == (num_events,) for column in (component, preselection, psr))
        fits &= len({len(names), len(labels), len(generated), len(sigma)}) == 1
        if not fits or not np.array_equal(labels[np.minimum(component, len(labels) - 1)], events.labels):
            raise UsageError(
                f"{path}: component, preselection or psr do not fit its {num_events} events; "
                "the file is damaged: make it again"
            )
    whole = PreselectedEvents(
        path=path,
        rows=np.flatnonzero(preselection),
        component=component[preselection > 0].astype(np.int64),
        psr=psr[preselection > 0] > 0,
        names=tuple(str(name) for name in names),
        component_labels=labels.astype(np.int64),
        num_generated=generated.astype(np.int64),
        cross_sections_mb=sigma.astype(np.float64),
    )
    found = whole if max_events is None else whole.subset(np.arange(min(max_events, len(whole.rows))))
    for label, kind in ((1, "signal"), (0, "background")):
        if np.count_nonzero(found.labels == label) < 4:
            raise UsageError(
                f"{path}: fewer than 4 of {len(found.rows)} preselected events are {kind}; take more events"
            )
    return found


def split(
    events: PreselectedEvents, *, seed: int, share: float = 0.5
) -> tuple[PreselectedEvents, PreselectedEvents]:
    """The `share` of every component's events in a random order, and the rest; the order is that of `seed`."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(events.rows))
    first = np.zeros(len(order), dtype=np.bool_)
    for component in range(len(events.names)):
        members = order[events.component[order] == component]
        first[members[: round(share * len(members))]] = True
    return events.subset(np.flatnonzero(first)), events.subset(np.flatnonzero(~first))


def write_balanced(events: PreselectedEvents, out: Path, *, seed: int) -> int:
    """Writes images and labels to the new file `out`, for training; returns the number of events in it.

    There are as many signal as background events: of the kind that has fewer, some are there more than once. Who
    trains on the file cannot meet any other event.
    """
    rng = np.random.default_rng(seed)
    kinds = [rng.permutation(events.rows[events.labels == label]) for label in (0, 1)]
    longest = max(map(len, kinds))
    rows = rng.permutation(np.concatenate([np.resize(kind, longest) for kind in kinds]))
    with EventFile(events.path) as source, h5py.File(out, "x") as file:
        shape = source.images.shape[1:]
        data = file.create_dataset(
            "data", (len(rows), *shape), np.float32, chunks=(1, *shape), compression="lzf"
        )
        for place, row in enumerate(rows):
            image, _ = source.event(int(row))
            data[place] = image.transpose(2, 0, 1)
        file["label"] = source.labels[rows]
    return len(rows)
