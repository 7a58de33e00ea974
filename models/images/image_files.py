"""Formats in which every image is a file of its own: class folders, lists, Flowers-102 as published."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.models.images.matlab import read_array
from dlscale.models.images.store import (
    CLASSES_FILE,
    IMAGE_SUFFIXES,
    OTHER_SUFFIXES,
    Encoded,
    bad_sample,
    read_classes,
    reason,
)

FLOWERS_LABELS = "imagelabels.mat"
FLOWERS_PARTS = ("trnid", "valid", "tstid")  # 1020, 1020 and 6149 images of 102 classes
_LARGEST_NUMBER = 10**6  # of a label or an image in its tables
LIST_FILE = "list.txt"  # in a folder that holds a list and its images
_LINE = re.compile(r"(?P<path>.+?)[ \t]+(?P<label>\d{1,9})", re.ASCII)


class ImageFiles:
    """Image files with a label each.

    `names` are relative to `root`, encoded: a million Python strings would cost each rank 100 MB. `problems` tell,
    by index, what is wrong with entries that are counted but cannot be read.
    """

    def __init__(
        self,
        format: str,  # noqa: A002 - the name that all stores give it
        path: Path,
        *,
        root: Path,
        names: NDArray[np.bytes_],
        labels: Sequence[int] | NDArray[Any],
        num_classes: int,
        classes: tuple[str, ...] = (),
        problems: dict[int, str] | None = None,
    ) -> None:
        self.format, self.path, self.classes = format, path, classes
        self.num_classes: int | None = num_classes
        self._root = root
        self._names = names
        self._labels = np.asarray(labels, dtype=np.int64)
        self._problems = problems or {}

    def __len__(self) -> int:
        return len(self._labels)

    def encoded(self, index: int) -> Encoded:
        """Sample `index`. Raises BadSample if its file cannot be read."""
        if index in self._problems:
            raise bad_sample(str(self.path), self._problems[index], index=index)
        path = self._root / os.fsdecode(self._names[index])
        try:
            data = read_regular(path, links=True)
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            raise bad_sample(str(path), reason(error), index=index) from None
        return Encoded(
            index=index, data=data, label=int(self._labels[index]), where=str(path), name=path.name, path=path
        )

    def close(self) -> None:
        """Nothing is kept open."""


def _encoded(names: Sequence[str]) -> NDArray[np.bytes_]:
    return np.array([os.fsencode(name) for name in names], dtype=np.bytes_)


def in_label_order(folders: Sequence[str]) -> list[str]:
    """The names of class folders in the order of their labels: of numbers if all are such, else of names."""
    numbers = all(name.isdecimal() for name in folders)
    return sorted(folders, key=lambda name: (int(name) if numbers else 0, name))


def open_class_folders(path: Path, *, skip_bad: bool = False) -> ImageFiles:
    """`path/<class>/<image>`, or in folders of the class; labels are the places of the folders in their order.

    Folders are in order of their names; in order of numbers if all names are such, so that Flowers-102's folders
    1 .. 102 get their published labels. A `classes.txt` beside them names the classes.

    Raises UsageError for a folder without images, and for files that are none, unless bad samples are skipped: then
    the label stays unused, and each such file is a sample that cannot be read. Links that lead to nothing, or to
    another class, are refused.
    """
    entries = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
    if lost := [entry for entry in entries if not entry.exists()]:
        raise UsageError(f"{lost[0]}: a link to nothing; copy the class there, or remove the link")
    folders = [path / name for name in in_label_order([entry.name for entry in entries if entry.is_dir()])]
    names = [_encoded([])]
    counts: list[int] = []
    taken = {_identity(path): path}
    for folder in folders:
        files = sorted(_files_below(folder, taken))
        if not skip_bad:
            _check_folder(folder, files)
        names.append(_encoded([os.path.join(folder.name, file) for file in files]))
        counts.append(len(files))
    beside = [name for name in os.listdir(path) if name[0] != "." and name.lower().endswith(IMAGE_SUFFIXES)]
    if beside and not skip_bad:
        raise UsageError(
            f"{path}: {len(beside)} images lie beside the class folders ({min(beside)}), and have no label; move them "
            "into a class"
        )
    classes = read_classes(path / CLASSES_FILE) or tuple(folder.name for folder in folders)
    if len(classes) != len(folders):
        raise UsageError(
            f"{path / CLASSES_FILE}: names {len(classes)} classes, and there are {len(folders)} folders; "
            "mend or remove it"
        )
    return ImageFiles(
        "class folders",
        path,
        root=path,
        names=np.concatenate(names),
        labels=np.repeat(np.arange(len(folders)), counts),
        num_classes=len(folders),
        classes=classes,
    )


def _identity(folder: str | Path) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _files_below(folder: Path, taken: dict[tuple[int, int], Path]) -> Iterator[str]:
    """The files of a class, relative to its folder, but for those that may lie beside images.

    `taken`: the folders that were looked into, and whose they are. Raises UsageError for one of another class.
    """
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, followlinks=True, onerror=_raise):
        identity = _identity(place)
        if identity in seen:  # by a link that comes back to it
            folders.clear()
            continue
        seen.add(identity)
        if (owner := taken.setdefault(identity, folder)) != folder:
            raise UsageError(
                f"{place}: leads by a link to images of {owner}, which would have two labels; remove the link"
            )
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = os.path.relpath(place, folder)
        for name in files:
            if not (name.startswith(".") or name.lower().endswith(OTHER_SUFFIXES)):
                yield name if inside == "." else os.path.join(inside, name)


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


def open_list(path: Path, *, skip_bad: bool = False) -> ImageFiles:
    """A text file of lines `path label`, paths relative to its folder, labels from 0.

    The label is what follows the last blank or tab, so paths may have blanks. Empty lines and those that begin with #
    are left out. Names of classes are in `<stem>.classes.txt` beside it, if anywhere.

    Raises UsageError for a malformed line, unless bad samples are skipped: then it is a sample that cannot be read.
    """
    names: list[str] = []
    labels: list[int] = []
    problems: dict[int, str] = {}
    try:
        content = path.read_text(
            encoding="utf-8-sig", errors="surrogateescape"
        )  # as names of files are decoded
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({reason(error)}); mend it") from None
    for number, line in enumerate(content.split("\n"), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if not match:
            problem = f"line {number} is not `path label` with a label from 0: {text[:80]!r}"
            if not skip_bad:
                raise UsageError(f"{path}: {problem}; mend it, or leave bad samples out (skip_bad)")
            problems[len(names)] = problem
        names.append(match["path"] if match else "")
        labels.append(int(match["label"]) if match else 0)
    classes = read_classes(names_file := path.with_suffix(f".{CLASSES_FILE}"))
    num_labels = max(labels, default=-1) + 1
    if classes and num_labels > len(classes):
        raise UsageError(
            f"{names_file}: names {len(classes)} classes, and {path.name} has the label {num_labels - 1}; "
            "mend or remove it"
        )
    return ImageFiles(
        "list",
        path,
        root=path.parent,
        names=_encoded(names),
        labels=labels,
        num_classes=len(classes) or num_labels,
        classes=classes,
        problems=problems,
    )


def open_flowers(path: Path, *, part: str = FLOWERS_PARTS[0]) -> ImageFiles:
    """Flowers-102 as published: `jpg/image_00001.jpg` ..., `imagelabels.mat` (1 .. 102) and `setid.mat`.

    `part` is one of those that setid.mat names: trnid (training), valid or tstid. Raises UsageError.

    Source: Nilsback and Zisserman, ICVGIP 2008, and the README of the data set.
    """
    if part not in FLOWERS_PARTS:
        raise UsageError(f"{path}: no part {part!r}; choose one of: {', '.join(FLOWERS_PARTS)}")
    labels = _matlab_integers(path / FLOWERS_LABELS, "labels")
    numbers = _matlab_integers(path / "setid.mat", part)
    if labels.min() < 1 or numbers.min() < 1 or numbers.max() > len(labels):
        raise UsageError(
            f"{path}: imagelabels.mat has {len(labels)} labels from {labels.min()} on, setid.mat names images "
            f"{numbers.min()} to {numbers.max()}; both count from 1: copy the two files again"
        )
    return ImageFiles(
        "Flowers-102",
        path / part,
        root=path / "jpg",
        names=_encoded([f"image_{number:05d}.jpg" for number in numbers]),
        labels=labels[numbers - 1] - 1,
        num_classes=int(labels.max()),
    )


def _matlab_integers(path: Path, name: str) -> NDArray[np.int64]:
    try:
        numbers = read_array(path, name)
        if not ((numbers >= 0) & (numbers <= _LARGEST_NUMBER) & (numbers % 1 == 0)).all():
            raise ValueError(f"{name!r} has other numbers than integers from 0 to {_LARGEST_NUMBER}")
        values = numbers.astype(np.int64)
    except KeyError:
        raise UsageError(f"{path}: no variable {name!r}; copy the published file again") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read ({reason(error)}); copy the published file again") from None
    if not len(values):
        raise UsageError(f"{path}: {name!r} is empty; copy the published file again")
    return values
