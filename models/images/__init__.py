"""Labelled images for ResNet-50 and Inception v3, from the formats in which data sets are published.

    class folders   `PATH/<class>/*.jpg`: ImageNet, Flowers-102 and others; the sorted folders have the labels 0, 1, ...
    TFRecord        `PATH/train-00000-of-01024` ...: ImageNet's convention; `PATH/train` names one of several sets
    LMDB            a folder with `data.mdb`, in the layout of `lmdb_store`
    CIFAR-10        the published binary files: `data_batch_*.bin` of a folder, or one file
    Flowers-102     `imagelabels.mat`, `setid.mat` and `jpg/`, as published; `PATH/tstid` names another part

Labels are 0 .. K - 1 whatever the format counts from. Nothing in here imports a framework.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.models.images.cifar import TRAINING_FILES, CifarStore
from dlscale.models.images.image_files import (
    FLOWERS_LABELS,
    FLOWERS_PARTS,
    open_class_folders,
    open_flowers,
)
from dlscale.models.images.lmdb_store import DATA_FILE, LmdbStore
from dlscale.models.images.store import Encoded, ImageStore, extra_packages, reason
from dlscale.models.images.tfrecord import TFRecordStore
from dlscale.models.samples import part_files

__all__ = ["Encoded", "ImageStore", "open_store"]

FORMATS = "class folders, TFRecord files, an LMDB, CIFAR-10's binary files or Flowers-102 as published"
_SHARD = re.compile(r"(?P<set>.+)-\d{5}-of-(?P<count>\d{5})(\.tfrecords?)?")
_TFRECORD_SUFFIXES = (".tfrecord", ".tfrecords")


def open_store(path: Path, *, skip_bad: bool = False) -> ImageStore:
    """The images at `path`, open for reading; the format is found by the names of files.

    A `path` that does not exist may name a part of what is there: `imagenet/train` of several sets of TFRecord
    files in one folder, `flowers/tstid` of Flowers-102. With `skip_bad`, what is damaged becomes samples that cannot
    be read, where it would otherwise end the opening.

    Raises UsageError if there is nothing of a known format, or it is damaged or empty, or LMDB or TFRecord files need
    a package that is not installed.
    """
    try:
        with extra_packages(path):
            store = _open(path, skip_bad=skip_bad)
    except OSError as error:
        raise UsageError(f"{error.filename or path}: cannot be read ({reason(error)}); mend it") from None
    if not len(store):
        raise UsageError(f"{path}: {store.format} without a single sample; choose another folder or file")
    return store


def _open(path: Path, *, skip_bad: bool) -> ImageStore:
    files = _tfrecord_files(path, skip_bad=skip_bad)
    if files:
        return TFRecordStore(path, files, skip_bad=skip_bad)
    if path.is_file():
        if path.suffix == ".bin":
            return CifarStore(path, skip_bad=skip_bad)
        raise UsageError(f"{path}: need {FORMATS}, found a file with another name; check the path")
    if not path.is_dir():
        if path.name in FLOWERS_PARTS and (path.parent / FLOWERS_LABELS).is_file():
            return open_flowers(path.parent, part=path.name)
        raise UsageError(f"{path}: need {FORMATS}, found no file or folder of that name; check the path")
    if (path / DATA_FILE).is_file():
        return LmdbStore(path)
    if (path / FLOWERS_LABELS).is_file():
        return open_flowers(path)
    if any(path.glob(TRAINING_FILES)):
        return CifarStore(path, skip_bad=skip_bad)
    inside = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if any(entry.is_dir() for entry in inside):
        return open_class_folders(path, skip_bad=skip_bad)
    entries = ", ".join(entry.name for entry in islice(inside, 3)) or "nothing"
    raise UsageError(
        f"{path}: need {FORMATS}, found {entries}{' ...' if len(inside) > 3 else ''}; check the path"
    )


def _tfrecord_files(path: Path, *, skip_bad: bool) -> list[Path]:
    """The files of one set of TFRecords in order; none if `path` is something else.

    Raises UsageError for a folder with several sets, and, unless bad samples are skipped, if files of it are missing.
    """
    if path.is_file():
        return [path] if _set_name(path.name) else []
    folder, wanted = (path, None) if path.is_dir() else (path.parent, path.name)
    if not folder.is_dir():
        return []
    files = part_files(folder, lambda name: (found := _set_name(name)) and wanted in (None, found))
    sets = sorted({_set_name(file.name) for file in files})
    if len(sets) > 1:
        raise UsageError(
            f"{path}: holds several sets of TFRecord files: {', '.join(sets)}; choose one: {path / sets[0]}"
        )
    shards = [match for file in files if (match := _SHARD.fullmatch(file.name))]
    counts = {int(shard["count"]) for shard in shards}
    if shards and counts != {len(shards)} and not skip_bad:
        raise UsageError(
            f"{path}: found {len(shards)} of {max(counts)} TFRecord files of a set; copy the rest, or leave out what "
            "is missing (skip_bad)"
        )
    return files


def _set_name(name: str) -> str:
    """The name of the set that a TFRecord file of that name is of; empty if it is none."""
    if match := _SHARD.fullmatch(name):
        return match["set"]
    stem, dot, suffix = name.rpartition(".")
    return stem if f"{dot}{suffix}" in _TFRECORD_SUFFIXES else ""
