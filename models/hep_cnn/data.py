"""The events that HEP-CNN trains on: HDF5 files in the layout of the published data set.

`data` (N, C, H, W) float32 and `label` (N), 1 for signal and 0 for background, are what training reads;
events/writer.py says what else a generated file holds. The sample that ships with dlscale was made by
`dlscale data hep-cnn --events 4000 --out models/hep_cnn/sample_64.h5`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from dlscale.models.errors import UsageError
from dlscale.models.workload import Input, Preset

_SAMPLE = Path(__file__).with_name("sample_64.h5")
_SAMPLE_SHAPE = (3, 64, 64)  # (C, H, W)


def default_input(preset: Preset) -> Input:
    """The events that ship with dlscale. Raises UsageError if they do not have the preset's shape."""
    if preset.input_shape != _SAMPLE_SHAPE:
        raise UsageError(
            f"preset {preset.name} of hep_cnn needs events of shape ({_commas(preset.input_shape)}), the "
            f"shipped ones have ({_commas(_SAMPLE_SHAPE)}); {_make_file(preset)} and pass it as --data FILE "
            "(make ... DATA=FILE)"
        )
    return Input(path=_SAMPLE)


def check_input(source: Input, preset: Preset) -> None:
    """Returns if `source` can feed the preset. Cheap: of `data`, only the first and last event are read.

    Raises UsageError if the file is missing, cannot be opened, lacks a dataset, or holds other shapes, types
    or labels than the preset needs, or fewer events than one local batch.
    """
    if source.path is None:
        return
    with _open(source.path) as file:
        _check_layout(file, source.path, preset)
    with EventFile(source.path) as events:
        events.read(np.array([0, len(events) - 1]))


def _check_layout(file: h5py.File, path: Path, preset: Preset) -> None:
    remedy = _make_file(preset)
    for name in ("data", "label"):
        if not isinstance(file.get(name), h5py.Dataset):
            found = ", ".join(file) or "nothing"
            raise UsageError(f"{path}: needs datasets 'data' and 'label' and holds: {found}; {remedy}")
    data, label = file["data"], file["label"]
    shape: tuple[int, ...] = data.shape or ()
    if shape[1:] != preset.input_shape:
        raise UsageError(
            f"{path}: preset {preset.name} needs 'data' of shape (N, {_commas(preset.input_shape)}), "
            f"found ({_commas(shape)}); choose another --preset, or {remedy}"
        )
    if data.dtype.newbyteorder("=") != np.float32:
        raise UsageError(f"{path}: 'data' must be float32, found {data.dtype}; convert it, or {remedy}")
    if label.shape != shape[:1] or label.dtype.kind not in "biuf":
        raise UsageError(
            f"{path}: 'label' must be one number for each of {shape[0]} events, found {label.dtype} "
            f"of shape ({_commas(label.shape or ())}); mend it, or {remedy}"
        )
    if shape[0] < preset.local_batch:
        raise UsageError(
            f"{path}: preset {preset.name} needs at least {preset.local_batch} events, one local batch, "
            f"found {shape[0]}; {remedy}"
        )
    others = np.setdiff1d(_read_labels(file, path), (0, 1))
    if len(others):
        found = ", ".join(map(str, others[:3].tolist()))
        raise UsageError(
            f"{path}: 'label' must be 1 (signal) or 0 (background), found {found}; mend it, or {remedy}"
        )


class EventFile:
    """A file of events, open for reading. `len()` of it is the number of events.

    Raises UsageError if it cannot be opened; call `check_input` before to have its layout checked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _open(path)
        self._data = self._file["data"]
        self._labels = _read_labels(self._file, path).astype(np.int64)

    def __len__(self) -> int:
        return len(self._labels)

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; reading is over."""
        self._file.close()

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Images (N, C, H, W) and labels (N,) of the N events `indices`, in that order; repeats are allowed.

        Raises UsageError naming the event that cannot be read, IndexError for one that does not exist.
        """
        labels = self._labels[indices]  # checks them all
        images = np.empty((len(indices), *self._data.shape[1:]), dtype=np.float32)
        # One event at a time, for h5py's index arrays cost more than the unpacking; sorted, so that a disk is
        # read forward, and a chunk of several events only once.
        for place in np.argsort(indices, kind="stable"):
            index = int(indices[place])
            try:
                images[place] = self._data[index]
            except OSError as error:
                raise _damaged(self._path, f"event {index}", error) from error
        return images, labels


def _open(path: Path) -> h5py.File:
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no file of that name"
        raise UsageError(f"{path}: need a file of HEP-CNN events and found {found}; check --data")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be opened as HDF5 ({error}); copy it again, or choose another --data"
        ) from error


def _read_labels(file: h5py.File, path: Path) -> NDArray[Any]:
    try:
        labels: NDArray[Any] = file["label"][:]
    except OSError as error:
        raise _damaged(path, "'label'", error) from error
    return labels


def _damaged(path: Path, what: str, error: OSError) -> UsageError:
    return UsageError(f"{path}: {what} cannot be read ({error}); the file is damaged: copy or make it again")


def _make_file(preset: Preset) -> str:
    size = preset.input_shape[-1]
    return f"make a file with `dlscale data hep-cnn --size {size} --events N --out FILE`"


def _commas(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))
