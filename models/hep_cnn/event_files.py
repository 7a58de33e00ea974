"""Files of HEP-CNN events, in either published layout, and folders of them as one sequence.

The benchmark's files hold `data` (N, C, H, W) and `label` (N) (github.com/NERSC/hep_cnn_benchmark, README); those
of the R-parity-violation set, RPV, a group `all_events` with the single channel `hist` (N, H, W) and `y` (N)
(github.com/sparticlesteve/cori-intml-examples). Labels are 1 for signal and 0 for background.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from dlscale.models.errors import UsageError
from dlscale.models.samples import BadSample

Images = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Names of the datasets, and the shape of `images` with its letters; without C there is one channel."""

    images: str
    labels: str
    axes: str


LAYOUTS = (
    Layout(images="data", labels="label", axes="NCHW"),
    Layout(images="all_events/hist", labels="all_events/y", axes="NHW"),
)


class EventFile:
    """A file of events, open for reading (`samples.Samples`). `len()` of it is the number of events.

    Raises UsageError if it cannot be opened or has neither layout.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _open(path)
        self.layout = _find_layout(self._file, path)
        self.images: h5py.Dataset = self._file[self.layout.images]
        self.labels = _read_labels(self._file[self.layout.labels], path)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(H, W, C)."""
        return (*self.images.shape[-2:], 1 if self.layout.axes == "NHW" else self.images.shape[1])

    def __len__(self) -> int:
        return self.labels.shape[0] if self.labels.ndim else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, indices: NDArray[np.int64]) -> tuple[Images, Labels]:
        """Images (N, H, W, C) and labels (N,) of the N events `indices`, in that order; repeats are allowed.

        Raises what `event` raises.
        """
        return _gather(self.event, indices, shape=self.image_shape)

    def close(self) -> None:
        """Closes the file; reading is over."""
        self._file.close()

    def event(self, index: int) -> tuple[Images, int]:
        """Image (H, W, C) and label of one event.

        Raises BadSample if it cannot be read, has a pixel that is not finite, or a label that is not 0 or 1;
        IndexError if there is none of that number.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"event {index} of {len(self)} in {self.path}")
        try:
            image = self.images[index].astype(np.float32, copy=False)
        except OSError as error:
            raise self._bad(
                index, f"cannot be read ({error}); the file is damaged: copy or make it again"
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

    def _bad(self, index: int, found: str) -> BadSample:
        return BadSample(f"{self.path}: event {index} {found}", index=index)


class EventFiles:
    """Several files, at least one, as one sequence (`samples.Samples`) in the order given.

    Their lengths may differ, the shapes of their images not.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.files = [EventFile(path) for path in paths]
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
        return _gather(self.event, indices, shape=self.image_shape)

    def close(self) -> None:
        """Closes the files; reading is over."""
        for file in self.files:
            file.close()

    def event(self, index: int) -> tuple[Images, int]:
        """As `EventFile.event`, with the number over all files; so is that of a BadSample."""
        if not 0 <= index < len(self):
            raise IndexError(f"event {index} of {len(self)}")
        number = int(np.searchsorted(self._ends, index, side="right"))
        begin = int(self._ends[number]) - len(self.files[number])
        try:
            return self.files[number].event(index - begin)
        except BadSample as error:
            raise BadSample(str(error), index=index) from error


def _gather(
    event: Callable[[int], tuple[Images, int]], indices: NDArray[np.int64], *, shape: tuple[int, int, int]
) -> tuple[Images, Labels]:
    images = np.empty((len(indices), *shape), dtype=np.float32)
    labels = np.empty(len(indices), dtype=np.int64)
    # One event at a time, for h5py's index arrays cost more than the unpacking; sorted, so that a disk is read
    # forward, and a chunk of several events only once.
    for place in np.argsort(indices, kind="stable"):
        images[place], labels[place] = event(int(indices[place]))
    return images, labels


def find_files(path: Path) -> list[Path]:
    """The file `path`, or of a folder the training files, sorted by name.

    Those are, by the benchmark's convention, the ones with "train" in their names that end in .h5 or .hdf5.
    Raises UsageError if there is none.
    """
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.iterdir()) if file.suffix in (".h5", ".hdf5") and file.is_file()]
    found = [file for file in files if "train" in file.name]
    if not found:
        others = ", ".join(file.name for file in files[:3]) or "no HDF5 file"
        raise UsageError(
            f"{path}: a folder of events needs files with 'train' in their names that end in .h5 or .hdf5, "
            f"found {others}; rename them, or name one file as --data"
        )
    return found


def _open(path: Path) -> h5py.File:
    """`path`, open for reading. Raises UsageError if there is no such file or it is not HDF5."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no file of that name"
        raise UsageError(f"{path}: need a file of HEP-CNN events and found {found}; check --data")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be opened as HDF5 ({error}); copy it again, or choose another --data"
        ) from error


def _find_layout(file: h5py.File, path: Path) -> Layout:
    for layout in LAYOUTS:
        if all(isinstance(file.get(name), h5py.Dataset) for name in (layout.images, layout.labels)):
            return layout
    found: list[str] = []
    file.visit(found.append)
    raise UsageError(
        f"{path}: needs datasets "
        + " or ".join(f"'{layout.images}' and '{layout.labels}'" for layout in LAYOUTS)
        + f", and holds: {', '.join(found[:8]) or 'nothing'}; make a file with `dlscale data hep-cnn`"
    )


def _read_labels(dataset: h5py.Dataset, path: Path) -> NDArray[Any]:
    try:
        labels: NDArray[Any] = dataset[()]
    except OSError as error:
        raise UsageError(
            f"{path}: {dataset.name.lstrip('/')!r} cannot be read ({error}); the file is damaged: "
            "copy or make it again"
        ) from error
    return labels
