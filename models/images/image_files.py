"""Formats in which every image is a file: class folders, and Flowers-102 as published."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.models.images.store import Encoded, bad_sample, reason

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")  # in any case
# What may lie next to images, and is none.
OTHER_SUFFIXES = (".txt", ".csv", ".tsv", ".json", ".xml", ".yaml", ".yml", ".md", ".html", ".db", ".ini")
PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}
FLOWERS_LABELS = "imagelabels.mat"
FLOWERS_PARTS = ("trnid", "valid", "tstid")  # 1020, 1020 and 6149 images of 102 classes


class ImageFiles:
    """Image files, `names` relative to `root`, with a label each.

    Names are kept encoded: a million Python strings would cost each rank 100 MB.
    """

    def __init__(
        self,
        format: str,  # noqa: A002 - the name that all stores give it
        path: Path,
        *,
        root: Path,
        names: Sequence[str],
        labels: Sequence[int] | NDArray[Any],
        num_classes: int,
    ) -> None:
        self.format, self.path = format, path
        self.num_classes: int | None = num_classes
        self._root = root
        self._names = np.array([os.fsencode(name) for name in names], dtype=np.bytes_)
        self._labels = np.asarray(labels, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._labels)

    def encoded(self, index: int) -> Encoded:
        """Sample `index`. Raises BadSample if its file cannot be read."""
        path = self._root / os.fsdecode(self._names[index])
        try:
            data = read_regular(path, links=True)
        except OSError as error:
            raise bad_sample(str(path), reason(error), index=index) from None
        return Encoded(index=index, data=data, label=int(self._labels[index]), where=str(path))

    def close(self) -> None:
        """Nothing is kept open."""


def open_class_folders(path: Path, *, skip_bad: bool = False) -> ImageFiles:
    """`path/<class>/<image>`, or in folders of the class; labels are the places of the folders in their order.

    Folders are in the order of their names, or of numbers if all names are such: folders 1 .. 102 of Flowers-102 get
    their published labels. Raises UsageError for folders that are parts of a set, links to nothing, linked folders
    inside a class, a class without images, and files that are none, the last two unless bad samples are skipped: then
    the label stays unused, and each such file is a sample that cannot be read.
    """
    inside = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
    if lost := [entry for entry in inside if not entry.exists()]:
        raise UsageError(f"{lost[0]}: a link to nothing; copy the class there, or remove the link")
    found = sorted(entry.name for entry in inside if entry.is_dir())
    if found and {*found} <= PARTS:
        raise UsageError(
            f"{path}: its folders {', '.join(found)} are parts of a set, not classes; name one of them that has class "
            "folders"
        )
    numbers = all(entry.name.isdecimal() for entry in inside if entry.is_dir())
    folders = sorted(
        (entry for entry in inside if entry.is_dir()),
        key=lambda entry: (int(entry.name) if numbers else 0, entry.name),
    )
    names: list[str] = []
    labels: list[int] = []
    for label, folder in enumerate(folders):
        files = sorted(_files_below(folder))
        if not skip_bad:
            _check_folder(folder, files)
        names += [os.path.join(folder.name, file) for file in files]
        labels += [label] * len(files)
    unlabelled = [entry.name for entry in inside if entry.name.lower().endswith(IMAGE_SUFFIXES)]
    if unlabelled and not skip_bad:
        raise UsageError(
            f"{path}: {len(unlabelled)} images next to the class folders ({min(unlabelled)}) have no label; move them "
            "into a class"
        )
    return ImageFiles("class folders", path, root=path, names=names, labels=labels, num_classes=len(folders))


def _files_below(folder: Path) -> Iterator[str]:
    """The files of a class, relative to its folder, but for those that may lie next to images."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if linked := next((name for name in folders if os.path.islink(os.path.join(place, name))), None):
            raise UsageError(
                f"{os.path.join(place, linked)}: a link to a folder inside a class; copy it there"
            )
        for name in files:
            if not (name.startswith(".") or name.lower().endswith(OTHER_SUFFIXES)):
                yield os.path.normpath(os.path.join(os.path.relpath(place, folder), name))


def _raise(error: OSError) -> None:
    """A folder that cannot be read is not left out (`os.walk`)."""
    raise error


def _check_folder(folder: Path, files: Sequence[str]) -> None:
    """Raises UsageError for a class folder that is none, or from which something would be left out."""
    images = [file for file in files if file.lower().endswith(IMAGE_SUFFIXES)]
    tops = {os.path.dirname(file).partition(os.sep)[0] for file in images}
    if len(tops) > 1 and "" not in tops:
        raise UsageError(
            f"{folder}: class folder without images; if it holds the class folders ({min(tops)}), name it itself"
        )
    others = [file for file in files if not file.lower().endswith(IMAGE_SUFFIXES)]
    if others:
        raise UsageError(
            f"{folder}: {len(others)} of {len(files)} files are neither JPEG nor PNG, such as {others[0]}; convert or "
            "remove them, or leave them out, counted as bad samples (skip_bad)"
        )
    if not images:
        suffixes = ", ".join(f"*{suffix}" for suffix in IMAGE_SUFFIXES)
        raise UsageError(f"{folder}: class folder without images ({suffixes}); fill or remove it")


def open_flowers(path: Path, *, part: str = FLOWERS_PARTS[0]) -> ImageFiles:
    """A part of Flowers-102 as published: `jpg/image_00001.jpg` ..., `imagelabels.mat` (1 .. 102) and `setid.mat`.

    Raises UsageError. Source: Nilsback and Zisserman, ICVGIP 2008, and the README of the data set.
    """
    labels, numbers = _integers(path / FLOWERS_LABELS, "labels"), _integers(path / "setid.mat", part)
    if numbers.max() > len(labels):
        raise UsageError(
            f"{path}: imagelabels.mat has {len(labels)} labels, setid.mat names image {numbers.max()}; copy both again"
        )
    return ImageFiles(
        "Flowers-102",
        path / part,
        root=path / "jpg",
        names=[f"image_{number:05d}.jpg" for number in numbers],
        labels=labels[numbers - 1] - 1,
        num_classes=int(labels.max()),
    )


def _integers(path: Path, name: str) -> NDArray[np.int64]:
    """The variable `name` of a MATLAB file, integers from 1. Raises UsageError."""
    from scipy.io import loadmat

    try:
        found = np.ravel(loadmat(path, variable_names=[name])[name])
        if found.dtype.kind not in "iuf" or not len(found) or not ((found >= 1) & (found % 1 == 0)).all():
            raise ValueError("not whole numbers from 1")
        return found.astype(np.int64)
    except Exception as error:  # a damaged file makes SciPy's reader raise many kinds
        raise UsageError(
            f"{path}: {name!r} cannot be read ({reason(error)}); copy the published file again"
        ) from None
