"""Writers of image data, one for each format: they put samples one after the other into a new, empty folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from io import BufferedWriter
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.models.images import lmdb_store, tfrecord
from dlscale.models.images.image_files import LIST_FILE, in_label_order
from dlscale.models.images.store import CLASSES_FILE, IMAGE_SUFFIXES, Encoded, class_lines, write_classes
from dlscale.models.images.tfrecord import Values, write_example

_SAFE_CLASS = re.compile(r"\w[\w .,'()+-]*", re.ASCII)
_COMMIT_BYTES = 64 << 20  # of one transaction, which LMDB keeps in memory
_MAP_BYTES = 1 << 40  # of addresses, not of the disk: a database cannot grow beyond it


class Writer:
    """Takes samples in the order of their index, then is finished. Raises OSError."""

    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        self._folder, self._classes = folder, classes

    def add(self, sample: Encoded, data: bytes) -> None:
        """Writes one sample, `data` being its JPEG or PNG file."""
        raise NotImplementedError

    def finish(self) -> None:
        """Writes what is left; nothing can be added any more. Raises UsageError if the format cannot hold it."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes its files, finished or not."""


class FoldersWriter(Writer):
    """`<class>/<image>`, and `classes.txt` where names are known.

    The folders have the classes' names if these are in order and make names of folders, else five digits.
    """

    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        super().__init__(folder, classes)
        safe = all(_SAFE_CLASS.fullmatch(name) for name in classes) and len(set(classes)) == len(classes)
        self._named = safe and in_label_order(classes) == list(classes)
        self._labels: set[int] = set()

    def add(self, sample: Encoded, data: bytes) -> None:
        folder = self._folder / self._name(sample.label)
        if sample.label not in self._labels:
            folder.mkdir()
            self._labels.add(sample.label)
        _write_image(folder, sample, data)

    def finish(self) -> None:
        """Writes the names. Raises UsageError if a class has no sample: folders cannot leave a label out."""
        num_classes = len(self._classes) or max(self._labels) + 1
        missing = next((label for label in range(num_classes) if label not in self._labels), None)
        if missing is not None:
            raise UsageError(
                f"class {self._name(missing)} (label {missing}) has no sample, and class folders cannot leave a label "
                "out; choose another --to"
            )
        write_classes(self._folder / CLASSES_FILE, self._classes)

    def _name(self, label: int) -> str:
        return self._classes[label] if self._classes and self._named else f"{label:05d}"


Place = Callable[[Encoded, bytes], str]
"""What a list says of where a sample's image file is, after writing it if need be."""


class ListWriter(Writer):
    """`name` with lines `path label`."""

    def __init__(self, folder: Path, classes: tuple[str, ...], *, name: str, place: Place) -> None:
        super().__init__(folder, classes)
        self._path, self._place = folder / name, place
        self._lines: list[str] = []

    def add(self, sample: Encoded, data: bytes) -> None:
        self._lines.append(f"{self._place(sample, data)} {sample.label}\n")

    def finish(self) -> None:
        self._path.write_text("".join(self._lines), encoding="utf-8", errors="surrogateescape")
        write_classes(self._path.with_suffix(f".{CLASSES_FILE}"), self._classes)


def list_of_copies(folder: Path, classes: tuple[str, ...]) -> ListWriter:
    """`list.txt` and the images, `images/<label>/<image>`."""

    def place(sample: Encoded, data: bytes) -> str:
        images = folder / "images" / f"{sample.label:05d}"
        images.mkdir(parents=True, exist_ok=True)
        return str(_write_image(images, sample, data).relative_to(folder))

    return ListWriter(folder, classes, name=LIST_FILE, place=place)


def list_in_place(folder: Path, classes: tuple[str, ...], *, name: str, beside: Path) -> ListWriter:
    """A list of image files where they are, to be moved to the folder `beside` later.

    Adding raises UsageError if the sample is no file, or one with a name that breaks a line.
    """

    def place(sample: Encoded, _: bytes) -> str:
        if sample.path is None:
            raise UsageError(
                f"{sample.where}: no image file of its own to list; name a folder as TARGET instead"
            )
        path = os.path.relpath(sample.path, beside)
        if "\n" in path or path != path.strip():
            raise UsageError(f"{sample.where!r}: a list cannot hold this name; rename the file")
        return f"./{path}" if path.startswith("#") else path

    return ListWriter(folder, classes, name=name, place=place)


class TFRecordWriter(Writer):
    """`data-00000-of-00008.tfrecord` ..., and `classes.txt` where names are known.

    Shard s of S takes samples [num_samples * s / S, num_samples * (s + 1) / S). Labels count from 1, as ImageNet's
    do, and every record says so.
    """

    def __init__(self, folder: Path, classes: tuple[str, ...], *, num_samples: int, num_shards: int) -> None:
        super().__init__(folder, classes)
        self._num_samples, self._num_shards = num_samples, num_shards
        self._num_opened = 0
        self._file: BufferedWriter | None = None

    def add(self, sample: Encoded, data: bytes) -> None:
        file = self._open(sample.index * self._num_shards // self._num_samples)
        features: dict[str, Values] = {
            tfrecord.ENCODED: [data],
            tfrecord.FORMAT: [b"PNG" if data.startswith(b"\x89PNG") else b"JPEG"],
            tfrecord.FILE_NAME: [os.fsencode(sample.name)],
            tfrecord.LABEL: [sample.label + tfrecord.FIRST_LABEL],
            tfrecord.FIRST_LABEL_KEY: [tfrecord.FIRST_LABEL],
        }
        if self._classes:
            features[tfrecord.CLASS_NAME] = [self._classes[sample.label].encode(errors="surrogateescape")]
        file.write(tfrecord.frame_record(write_example(features)))

    def finish(self) -> None:
        self._open(self._num_shards - 1)
        write_classes(self._folder / CLASSES_FILE, self._classes)

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    def _open(self, shard: int) -> BufferedWriter:
        while self._file is None or self._num_opened <= shard:
            self.close()
            name = f"data-{self._num_opened:05d}-of-{self._num_shards:05d}.tfrecord"
            self._file = (self._folder / name).open("xb")
            self._num_opened += 1
        return self._file


class LmdbWriter(Writer):
    """An LMDB database as lmdb_store.py describes it."""

    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        import lmdb

        super().__init__(folder, classes)
        try:
            # Nobody else knows the folder yet, so no lock; it is synchronised once, when it is complete.
            self._database = lmdb.open(str(folder), map_size=_MAP_BYTES, lock=False, sync=False, mode=0o644)
        except lmdb.Error as error:
            raise OSError(f"LMDB: {error}") from error
        self._pending: list[tuple[bytes, bytes]] = []
        self._num_samples = 0
        self._num_bytes = 0

    def add(self, sample: Encoded, data: bytes) -> None:
        """Writes one sample; its key is the number of samples before, so that there is no gap."""
        value = lmdb_store.LABEL.pack(sample.label) + data
        self._pending.append((lmdb_store.sample_key(self._num_samples), value))
        self._num_samples += 1
        self._num_bytes += len(value)
        if self._num_bytes > _COMMIT_BYTES:
            self._commit()

    def finish(self) -> None:
        names = class_lines(self._classes).encode(errors="surrogateescape")
        self._pending += [(lmdb_store.LENGTH_KEY, b"%d" % self._num_samples), (lmdb_store.CLASSES_KEY, names)]
        self._commit()

    def close(self) -> None:
        self._database.close()

    def _commit(self) -> None:
        import lmdb

        try:
            with self._database.begin(write=True) as transaction:
                for key, value in self._pending:
                    transaction.put(key, value)
        except lmdb.Error as error:
            raise OSError(f"LMDB: {error}") from error
        self._pending.clear()
        self._num_bytes = 0


def _write_image(folder: Path, sample: Encoded, data: bytes) -> Path:
    """The image under the name that it came with, where that is free and safe; else with its index before it."""
    suffix = ".png" if data.startswith(b"\x89PNG") else ".jpg"
    name = re.sub(r"[^\w.+-]", "_", sample.name, flags=re.ASCII).lstrip(".")
    if not name:
        name = f"{sample.index:08d}{suffix}"
    elif not name.lower().endswith(IMAGE_SUFFIXES):
        name += suffix
    path = folder / name
    try:
        file = path.open("xb")
    except FileExistsError:
        path = folder / f"{sample.index:08d}_{name}"
        file = path.open("xb")
    with file:
        file.write(data)
    return path
