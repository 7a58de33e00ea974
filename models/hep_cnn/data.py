"""HEP-CNN's data, as `samples.DataModule` asks for it: HDF5 files of events in either published layout, or folders of
them as one sequence.

The sample that ships with dlscale has the events of `examples/data/hep_events.py sample_64.h5 --events 4000`.

The benchmark's files hold `data` (N, C, H, W) and `label` (N) (github.com/NERSC/hep_cnn_benchmark, README); those of
the R-parity-violation set, RPV, a group `all_events`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.hdf5 import DAMAGES, Needs, examine, open_file, reason
from dlscale.models.hep_cnn import NETWORKS, mask_shapes
from dlscale.models.parallel import Rows
from dlscale.models.samples import Arrays, BadSample, draw_masks, part_files
from dlscale.models.workload import Input, Preset

if TYPE_CHECKING:
    import h5py  # which only files need

Images = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Names of the datasets, and the shape of `images` with its letters; without C there is one channel."""

    images: str
    labels: str
    axes: str

    @property
    def names(self) -> tuple[str, str]:
        return self.images, self.labels


LAYOUTS = (
    Layout(images="data", labels="label", axes="NCHW"),
    Layout(images="all_events/hist", labels="all_events/y", axes="NHW"),
)
NEEDS = Needs(tuple(layout.names for layout in LAYOUTS), "make a file with examples/data/hep_events.py")


class EventFile:
    """A file of events, open for reading (`samples.Samples`). `len()` of it is the number of events.

    Images have `rows` of the whole ones. Raises UsageError if it cannot be opened or has neither layout.
    """

    def __init__(self, path: Path, rows: Rows | None = None) -> None:
        self.path = path
        self._file, names = open_file(path, NEEDS)
        self.layout = next(layout for layout in LAYOUTS if layout.names == names)
        self.images: h5py.Dataset = self._file[self.layout.images]
        self.labels = _read_labels(self._file[self.layout.labels], path)
        self._rows = slice(None) if rows is None else rows.own(self.images.shape[-2])

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(H, W, C), of what is read."""
        height, width = self.images.shape[-2:]
        return (
            len(range(height)[self._rows]),
            width,
            1 if self.layout.axes == "NHW" else self.images.shape[1],
        )

    def __len__(self) -> int:
        return self.labels.shape[0] if self.labels.ndim else 0

    @cached_property
    def weights(self) -> NDArray[np.float64] | None:
        """The cross sections [mb] that all events stand for; None if the file does not say."""
        weights = self._file.get("weight")
        return weights[:].astype(np.float64) if hasattr(weights, "dtype") else None

    def close(self) -> None:
        self._file.close()

    def event(self, index: int) -> tuple[Images, int]:
        """Image (H, W, C) and label of one event.

        Raises BadSample if it cannot be read, has a pixel that is not finite, or a label that is not 0 or 1;
        IndexError if there is none of that number.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"event {index} of {len(self)} in {self.path}")
        try:
            image = self.images[index, ..., self._rows, :].astype(np.float32, copy=False)
        except DAMAGES as error:
            raise self._bad(
                index, f"cannot be read ({reason(error)}); the file is damaged: copy or make it again"
            ) from error
        if not np.isfinite(image).all():
            raise self._bad(index, "has a pixel that is not a finite number; mend the file or make it again")
        if self.labels[index] not in (0, 1):
            raise self._bad(
                index, f"has the label {self.labels[index]}, not 1 (signal) or 0 (background); mend the file"
            )
        if image.ndim == 2:
            return image[:, :, None], int(self.labels[index])
        return image.transpose(1, 2, 0), int(self.labels[index])

    def _bad(self, index: int, problem: str) -> BadSample:
        return BadSample(f"{self.path}: event {index} {problem}", index=index)


class EventFiles:
    """Several files, at least one, as one sequence (`samples.Samples`) in the order given.

    Their lengths may differ, the shapes of their images not.
    """

    def __init__(self, paths: Sequence[Path], rows: Rows | None = None) -> None:
        self.files = [EventFile(path, rows) for path in paths]
        self._ends = np.cumsum([len(file) for file in self.files])

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(H, W, C), of all files."""
        return self.files[0].image_shape

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def skip(self, count: int) -> None:
        """Nothing is drawn at random: events are read as they are."""

    def read(self, indices: NDArray[np.int64]) -> tuple[Images, Labels]:
        """Images (N, H, W, C) and labels (N,) of the N events `indices`, in that order; repeats are allowed.

        Raises what `event` raises.
        """
        images = np.empty((len(indices), *self.image_shape), dtype=np.float32)
        labels = np.empty(len(indices), dtype=np.int64)
        # One event at a time, for h5py's index arrays cost more than the unpacking; sorted, so that a disk is read
        # forward, and a chunk of several events only once.
        for place in np.argsort(indices, kind="stable"):
            images[place], labels[place] = self.event(int(indices[place]))
        return images, labels

    def close(self) -> None:
        for file in self.files:
            file.close()

    def event(self, index: int) -> tuple[Images, int]:
        """Like `EventFile.event`, numbered over all files; so is a BadSample."""
        if not 0 <= index < len(self):
            raise IndexError(f"event {index} of {len(self)}")
        file, place = self._place(index)
        try:
            return file.event(place)
        except BadSample as error:
            raise BadSample(str(error), index=index) from error

    def weights(self, indices: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """The cross sections [mb] (N,) that these events stand for; None if a file does not say."""
        places = [self._place(index) for index in indices.tolist()]
        known = [float(file.weights[place]) for file, place in places if file.weights is not None]
        return np.array(known) if len(known) == len(places) else None

    def _place(self, index: int) -> tuple[EventFile, int]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self.files[number], index - int(self._ends[number]) + len(self.files[number])


def find_files(path: Path) -> list[Path]:
    """The file `path`, or of a folder the training files, sorted by name.

    Those are, by the benchmark's convention, the ones with "train" in their names that end in .h5 or .hdf5.
    Raises UsageError if there is none.
    """
    if not path.is_dir():
        return [path]
    files = [name for name in sorted(os.listdir(path)) if name.lower().endswith((".h5", ".hdf5"))]
    training_files = part_files(path, lambda name: name in files and "train" in name.lower())
    if not training_files:
        others = ", ".join(files[:3]) or "no HDF5 file"
        raise UsageError(
            f"{path}: a folder of events needs files with 'train' in their names that end in .h5 or .hdf5, "
            f"found {others}; rename them, or name one file as --data"
        )
    return training_files


def _read_labels(dataset: h5py.Dataset, path: Path) -> NDArray[Any]:
    try:
        labels: NDArray[Any] = dataset[()]
    except DAMAGES as error:
        raise UsageError(
            f"{path}: {str(dataset.name).lstrip('/')!r} cannot be read ({reason(error)}); the file is damaged: "
            "copy or make it again"
        ) from error
    return labels


_SAMPLE = Path(__file__).with_name("sample_64.h5")
_SAMPLE_SHAPE = (3, 64, 64)  # (C, H, W)


def default_input(preset: Preset) -> Input:
    """The events that ship with dlscale. Raises UsageError if they do not have the preset's shape."""
    if preset.input_shape != _SAMPLE_SHAPE:
        raise UsageError(
            f"preset {preset.name} of hep_cnn needs events of shape ({_commas(preset.input_shape)}), the "
            f"shipped ones have ({_commas(_SAMPLE_SHAPE)}); {_remedy(preset)} and pass it as --data FILE "
            "(make ... DATA=FILE)"
        )
    return Input(path=_SAMPLE)


def check_input(source: Input, preset: Preset, *, num_samples: int = 1) -> None:
    """Returns if `source` can feed the preset. Cheap: of the images, only each file's first and last are read.

    Raises UsageError if a file is missing, cannot be opened, lacks a dataset, or holds other shapes or types
    than the preset needs, or if all files together hold fewer than `num_samples` events. Unless bad samples are
    to be skipped, a label other than 0 or 1 and damage to the events that were read are refused too.
    """
    if source.path is None:
        return
    paths = find_files(source.path)
    examine(paths, NEEDS)
    with EventFiles(paths) as events:
        for file in events.files:
            _check_layout(file, preset)
            if not source.skip_bad:
                _check_labels(file, preset)
                for index in {0, len(file) - 1} if len(file) else ():
                    file.event(index)
        if len(events) < num_samples:
            raise UsageError(
                f"{source.path}: needs at least {num_samples} events, one global batch of preset {preset.name}, "
                f"found {len(events)}; take smaller batches or fewer ranks, or {_remedy(preset)}"
            )


def open_samples(
    source: Input,
    preset: Preset,  # noqa: ARG001
    *,
    seed: tuple[int, int] | None,  # noqa: ARG001
    rows: Rows | None = None,
) -> EventFiles:
    """The events of a checked `source`, or `rows` of them, open for reading. Nothing about reading them is random."""
    if source.path is None:
        raise ValueError("synthetic input has no file to open")
    return EventFiles(find_files(source.path), rows)


def synthetic_batch(preset: Preset, local_batch: int, rng: np.random.Generator) -> Arrays:
    """Uniform noise in [0, 1), (N, H, W, C) float32, with random labels (N,) int64."""
    channels, height, width = preset.input_shape
    images = rng.random((local_batch, height, width, channels), dtype=np.float32)
    return images, rng.integers(0, 2, local_batch)


def step_inputs(preset: Preset, local_batch: int, rng: np.random.Generator, *, gate: bool) -> Arrays:
    """The dropout masks of a step, each (N, H, W, C) or (N, units) uint8; with `gate` none."""
    if gate:
        return ()
    _, height, width = preset.input_shape
    shapes = mask_shapes(NETWORKS[preset.name], height=height, width=width)
    return tuple(draw_masks(rng, shapes, local_batch))


def _check_layout(file: EventFile, preset: Preset) -> None:
    images, labels = file.images, file.labels
    shape: tuple[int, ...] = images.shape or ()
    channels, *pixels = preset.input_shape
    single = file.layout.axes == "NHW"
    if (1, *shape[1:]) != preset.input_shape if single else shape[1:] != preset.input_shape:
        wanted = pixels if single and channels == 1 else preset.input_shape
        raise UsageError(
            f"{file.path}: preset {preset.name} needs {file.layout.images!r} of shape (N, {_commas(wanted)}), "
            f"found ({_commas(shape)}); choose another --preset, or {_remedy(preset)}"
        )
    # The RPV set's own type is not stated anywhere: both kinds of float are read.
    try:
        kind = images.dtype.newbyteorder("=")
    except DAMAGES as error:
        raise UsageError(
            f"{file.path}: {file.layout.images!r} cannot be read ({reason(error)}); the file is damaged: copy or make "
            "it again"
        ) from error
    if kind != np.float32 and not (single and kind == np.float64):
        raise UsageError(
            f"{file.path}: {file.layout.images!r} must be float32, found {kind}; convert it, "
            f"or {_remedy(preset)}"
        )
    if labels.shape != shape[:1] or labels.dtype.kind not in "biuf":
        raise UsageError(
            f"{file.path}: {file.layout.labels!r} must be one number for each of {shape[0]} events, found "
            f"{labels.dtype} of shape ({_commas(labels.shape)}); mend it, or {_remedy(preset)}"
        )


def _check_labels(file: EventFile, preset: Preset) -> None:
    others = np.setdiff1d(file.labels, (0, 1))
    if len(others):
        labels = ", ".join(map(str, others[:3].tolist()))
        raise UsageError(
            f"{file.path}: {file.layout.labels!r} must be 1 (signal) or 0 (background), found {labels}; mend it, "
            f"or {_remedy(preset)}"
        )


def _remedy(preset: Preset) -> str:
    channels, _, size = preset.input_shape
    if channels == 1:
        return "take a file of the public RPV data set (group 'all_events' with 'hist' and 'y')"
    return f"make a file with examples/data/hep_events.py FILE --size {size} --events N"


def _commas(shape: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, shape))
