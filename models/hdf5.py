"""Whether all values of an HDF5 dataset are stored: what is missing, HDF5 reads as zeros without a word.

A virtual dataset is a map of others, perhaps of other files, and of itself, which ends the process by a signal when it
is read; a chunk that was never written has the fill value. So both are looked for before anything is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py

from dlscale.base.errors import UsageError

# What h5py raises for a damaged file, besides OSError: of its heap, its types, its shapes.
DAMAGES = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError)
MOST_NESTED = 8  # virtual datasets of virtual datasets
SAME_FILE = "."  # HDF5's name, in a map, of the file that holds it
BLOCK = "%b"  # in a name: one source for each block, numbered from 0


def check_stored(dataset: h5py.Dataset, path: Path) -> None:
    """Returns if every value of a dataset of the file `path` is stored in an HDF5 file. Raises UsageError."""
    where = f"{path}: {_name(dataset)!r}"
    try:
        _check(dataset, Path(dataset.file.filename), where, nested=0)  # a link may lead to another file
    except DAMAGES as error:
        raise UsageError(
            f"{where} cannot be read ({reason(error)}); the file is damaged: copy or make it again"
        ) from error


def reason(error: BaseException) -> str:
    """An error of HDF5's in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def unopened(error: BaseException) -> str:
    """Why a file cannot be opened as HDF5, and what to do."""
    text = reason(error)
    if "unable to lock file" in text:
        return (
            f"cannot be opened as HDF5 ({text}): another program has it open for writing; wait for it, or on a file "
            "system without locks set HDF5_USE_FILE_LOCKING=FALSE"
        )
    return f"cannot be opened as HDF5 ({text}); copy it again, or choose another one"


def _check(dataset: h5py.Dataset, path: Path, where: str, *, nested: int) -> None:
    if not dataset.size:
        return
    if dataset.is_virtual:
        _check_sources(dataset, path, where, nested=nested)
        return
    if dataset.external:
        raise UsageError(
            f"{where} has its values in {dataset.external[0][0]}, which is no HDF5 file, and HDF5 reads what is not "
            "there as zeros; copy them into a dataset"
        )
    missing = _missing_chunks(dataset)
    if missing:
        raise UsageError(
            f"{where} was not written whole ({missing}), and HDF5 reads the rest as {dataset.fillvalue}; write it, or "
            "copy the file again"
        )


def _check_sources(dataset: h5py.Dataset, path: Path, where: str, *, nested: int) -> None:
    if nested == MOST_NESTED:
        raise UsageError(
            f"{where} is virtual, and its sources are virtual {MOST_NESTED} times over, or come back to itself; make "
            "it of datasets that hold numbers"
        )
    sources = dataset.virtual_sources()
    num_mapped = _num_mapped(sources)
    if num_mapped is not None and num_mapped < dataset.size:
        raise UsageError(
            f"{where} is virtual, with sources for {num_mapped} of its {dataset.size} values, and HDF5 reads the rest "
            f"as {dataset.fillvalue}; map all of it"
        )
    for file_name, dataset_name in sorted({(source.file_name, source.dset_name) for source in sources}):
        file = path
        if file_name != SAME_FILE:
            file = _existing(file_name.replace(BLOCK, "0"), path, where)
        inner = dataset_name.replace(BLOCK, "0")
        try:
            with h5py.File(file, "r") as opened:
                source = opened.get(inner)
                if not isinstance(source, h5py.Dataset):
                    raise UsageError(
                        f"{where} is virtual, and its source {file} has no dataset {inner!r}, which HDF5 reads as "
                        f"{dataset.fillvalue}; copy the source again"
                    )
                _check(source, file, where, nested=nested + 1)
        except OSError as error:
            raise UsageError(
                f"{where} is virtual, and its source {file} cannot be opened ({' '.join(str(error).split())}); copy "
                "the source again"
            ) from None


def _existing(name: str, path: Path, where: str) -> Path:
    """A file that a dataset's values are in: beside its own file, or where the command is given."""
    for file in (path.parent / name, Path(name)):
        if file.is_file():
            return file
    raise UsageError(f"{where} has its values in {name}, which is not there; copy it beside {path.name}")


def _num_mapped(sources: Sequence[Any]) -> int | None:
    """Values that the sources of a map have; None if it has no end: such maps grow with their sources."""
    try:
        return sum(int(source.vspace.get_select_npoints()) for source in sources)
    except RuntimeError:
        return None


def _missing_chunks(dataset: h5py.Dataset) -> str:
    """How much of a dataset that is not virtual was never written; empty if nothing."""
    if dataset.chunks is None:
        written = dataset.id.get_space_status() != h5py.h5d.SPACE_STATUS_NOT_ALLOCATED
        return "" if written else "no value of it was"
    pairs = zip(dataset.shape, dataset.chunks, strict=True)
    wanted = math.prod(-(-length // chunk) for length, chunk in pairs)
    found = dataset.id.get_num_chunks()
    return f"{found} of {wanted} chunks were" if found < wanted else ""


def _name(dataset: h5py.Dataset) -> str:
    return str(dataset.name).lstrip("/")
