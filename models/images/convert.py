"""From one format of image data to another: `dlscale data convert SOURCE TARGET --to FORMAT`.

A writer puts samples one after the other into a folder that is new and empty.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Protocol

from dlscale.base.errors import UsageError
from dlscale.models.images import lmdb_store, tfrecord
from dlscale.models.images.decode import check_image
from dlscale.models.images.image_files import LIST_FILE, in_label_order
from dlscale.models.images.opening import open_store
from dlscale.models.images.store import (
    CLASSES_FILE,
    IMAGE_SUFFIXES,
    REMEDY,
    Encoded,
    ImageStore,
    bad_sample,
    class_lines,
    extra_packages,
    reason,
    write_classes,
)
from dlscale.models.images.tfrecord import Values, write_example
from dlscale.models.samples import BadSample

_SAFE_CLASS = re.compile(r"\w[\w .,'()+-]*", re.ASCII)
_COMMIT_BYTES = 64 << 20  # of one transaction, which LMDB keeps in memory
_MAP_BYTES = 1 << 40  # of addresses, not of the disk: a database cannot grow beyond it


class Writer(Protocol):
    """Takes samples in the order of their index, then is finished. Raises OSError."""

    def add(self, sample: Encoded, data: bytes) -> None:
        """Writes one sample, `data` being its JPEG or PNG file."""
        ...

    def finish(self) -> None:
        """Writes what is left; nothing can be added any more. Raises UsageError if the format cannot hold it."""
        ...

    def close(self) -> None:
        """Closes its files, finished or not."""
        ...


class FoldersWriter:
    """`<class>/<image>`, and `classes.txt` where names are known.

    The folders have the classes' names if these are in order and make names of folders, else five digits.
    """

    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        self._folder, self._classes = folder, classes
        safe = all(_SAFE_CLASS.fullmatch(name) for name in classes) and len(set(classes)) == len(classes)
        self._named = safe and in_label_order(classes) == list(classes)
        self._labels: set[int] = set()

    def add(self, sample: Encoded, data: bytes) -> None:
        """Writes one image file."""
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

    def close(self) -> None:
        """Nothing is kept open."""

    def _name(self, label: int) -> str:
        return self._classes[label] if self._classes and self._named else f"{label:05d}"


class ListWriter:
    """`list.txt` with lines `images/<label>/<image> label`, and the images."""

    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        self._folder, self._classes = folder, classes
        self._lines: list[str] = []

    def add(self, sample: Encoded, data: bytes) -> None:
        """Writes one image file and remembers its line."""
        images = self._folder / "images" / f"{sample.label:05d}"
        images.mkdir(parents=True, exist_ok=True)
        path = _write_image(images, sample, data)
        self._lines.append(f"{path.relative_to(self._folder)} {sample.label}\n")

    def finish(self) -> None:
        """Writes the list and the names of the classes."""
        _write_list(self._folder / LIST_FILE, self._lines, self._classes)

    def close(self) -> None:
        """Nothing is kept open."""


class ReferenceWriter:
    """A list of image files where they are, `name` in `folder`, to be moved to the folder `beside` later."""

    def __init__(self, folder: Path, classes: tuple[str, ...], *, name: str, beside: Path) -> None:
        self._path, self._classes, self._beside = folder / name, classes, beside
        self._lines: list[str] = []

    def add(self, sample: Encoded, data: bytes) -> None:  # noqa: ARG002
        """Remembers one line. Raises UsageError if the sample is no file, or one with a name that breaks a line."""
        if sample.path is None:
            raise UsageError(
                f"{sample.where}: no image file of its own to list; name a folder as TARGET instead"
            )
        place = os.path.relpath(sample.path, self._beside)
        if "\n" in place or place != place.strip():
            raise UsageError(f"{sample.where!r}: a list cannot hold this name; rename the file")
        self._lines.append(
            f"./{place} {sample.label}\n" if place.startswith("#") else f"{place} {sample.label}\n"
        )

    def finish(self) -> None:
        """Writes the list and the names of the classes."""
        _write_list(self._path, self._lines, self._classes)

    def close(self) -> None:
        """Nothing is kept open."""


class TFRecordWriter:
    """`data-00000-of-00008.tfrecord` ..., and `classes.txt` where names are known.

    Shard s of S takes samples [num_samples * s / S, num_samples * (s + 1) / S). Labels count from 1, as ImageNet's
    do, and every record says so.
    """

    def __init__(self, folder: Path, classes: tuple[str, ...], *, num_samples: int, num_shards: int) -> None:
        self._folder, self._classes = folder, classes
        self._num_samples, self._num_shards = num_samples, num_shards
        self._num_opened = 0
        self._file: BufferedWriter | None = None

    def add(self, sample: Encoded, data: bytes) -> None:
        """Writes one record."""
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
        """Writes files that are still missing, empty ones, and the names."""
        self._open(self._num_shards - 1)
        write_classes(self._folder / CLASSES_FILE, self._classes)

    def close(self) -> None:
        """Closes the file that is being written."""
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


class LmdbWriter:
    """An LMDB database as lmdb_store.py describes it."""

    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        import lmdb

        self._classes = classes
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
        """Writes the rest, the number of samples and the names."""
        names = class_lines(self._classes).encode(errors="surrogateescape")
        self._pending += [(lmdb_store.LENGTH_KEY, b"%d" % self._num_samples), (lmdb_store.CLASSES_KEY, names)]
        self._commit()

    def close(self) -> None:
        """Closes the database."""
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


def _write_list(path: Path, lines: list[str], classes: tuple[str, ...]) -> None:
    path.write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
    write_classes(path.with_suffix(f".{CLASSES_FILE}"), classes)


FORMATS = ("folders", "tfrecord", "lmdb", "list")
_SAMPLES_PER_SHARD = 1251  # of ImageNet's 1,281,167 images in 1024 files
_MAX_CLASSES = 1 << 31  # labels have 4 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The samples that a conversion wrote, and those that it left out."""

    num_samples: int
    num_bytes: int  # of encoded images
    source_format: str
    skipped: tuple[str, ...]  # for each bad sample, where it is and what is wrong


def convert(
    source: Path,
    target: Path,
    to: str,
    *,
    num_shards: int | None = None,
    first_label: int | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Converted:
    """Writes the images of `source` to the folder `target` in the format `to`, one of FORMATS.

    JPEG and PNG files keep every byte, raw pixels become PNG files. Samples keep their order, but that class folders
    are read class by class. Every image is checked by unpacking it. A `target` *.txt with the format list is a
    list of the source's image files where they are; any other holds the images. `num_shards` is for TFRecord, by
    default one per 1251 samples. `progress` is called with the number of samples done and their number.

    Until it is complete, the target lies in a hidden folder beside it, which goes away on any failure and on Ctrl-C.
    Raises UsageError if the source is damaged, the target exists (with `overwrite`: if it holds something else than
    images) or cannot be written; BadSample for a bad sample, unless these are skipped.
    """
    _check_target(source, target, overwrite=overwrite)
    store = open_store(source, skip_bad=skip_bad, first_label=first_label)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
            whole = Path(scratch) / "whole"
            whole.mkdir()
            with (
                extra_packages(target),
                closing(_writer(whole, target, to, store=store, num_shards=num_shards)) as writer,
            ):
                converted = _copy(store, writer, skip_bad=skip_bad, progress=progress)
            os.sync()  # once, for a file at a time would take longer than the copying
            _publish(whole, target, old=Path(scratch) / "old")
    except OSError as error:
        raise UsageError(
            f"cannot write {target}: {reason(error)}; free some space or choose another TARGET"
        ) from None
    finally:
        store.close()
    return converted


def _check_target(source: Path, target: Path, *, overwrite: bool) -> None:
    here, there = source.resolve(), target.resolve()
    if here == there or here.is_relative_to(there) or (there.is_relative_to(here) and not _is_list(target)):
        raise UsageError(f"{target}: overlaps with the source {source}; choose another TARGET")
    if not target.parent.is_dir():
        raise UsageError(f"{target}: there is no folder {target.parent}; make it or choose another TARGET")
    taken = next((path for path in (target, _names_of(target)) if path.exists()), None)
    if taken and not overwrite:
        raise UsageError(f"{taken} exists; choose another TARGET, or replace it with --overwrite")
    if not target.exists():
        return
    if target.is_dir() == _is_list(target):
        kind = "a folder" if target.is_dir() else "a file"
        raise UsageError(f"{target}: found {kind}, which is not what would replace it; choose another TARGET")
    try:
        # Any text would be a list, of bad lines.
        open_store(target, skip_bad=not _is_list(target)).close()
    except UsageError as error:
        raise UsageError(f"{target} holds something else than images ({error}); remove it yourself") from None


def _is_list(target: Path) -> bool:
    return target.suffix == ".txt"


def _names_of(target: Path) -> Path:
    """Where a list has the names of its classes; for another target, that itself."""
    return target.with_suffix(f".{CLASSES_FILE}") if _is_list(target) else target


def _writer(folder: Path, target: Path, to: str, *, store: ImageStore, num_shards: int | None) -> Writer:
    if num_shards is not None and to != "tfrecord":
        raise UsageError(f"--shards {num_shards} is for TFRecord files, not for --to {to}")
    if _is_list(target) and to != "list":
        raise UsageError(f"{target}: --to {to} makes a folder; choose a TARGET without .txt")
    if to == "folders":
        return FoldersWriter(folder, store.classes)
    if to == "lmdb":
        return LmdbWriter(folder, store.classes)
    if to == "list" and _is_list(target):
        beside = target.parent.resolve()
        return ReferenceWriter(folder, store.classes, name=target.name, beside=beside)
    if to == "list":
        return ListWriter(folder, store.classes)
    if to != "tfrecord":
        raise UsageError(f"no format {to!r}; choose one of: {', '.join(FORMATS)}")
    shards = max(1, round(len(store) / _SAMPLES_PER_SHARD)) if num_shards is None else num_shards
    if not 1 <= shards <= min(len(store), 99_999):
        raise UsageError(f"--shards {shards}: {len(store)} samples make 1 to {min(len(store), 99_999)} files")
    return TFRecordWriter(folder, store.classes, num_samples=len(store), num_shards=shards)


def _copy(
    store: ImageStore, writer: Writer, *, skip_bad: bool, progress: Callable[[int, int], None] | None
) -> Converted:
    skipped: list[str] = []
    num_bytes = 0
    for index in range(len(store)):
        try:
            sample = store.encoded(index)
            data = _checked(sample, store.num_classes or _MAX_CLASSES)
        except BadSample as error:
            if not skip_bad:
                raise
            skipped.append(str(error).removesuffix(REMEDY))
        else:
            writer.add(sample, data)
            num_bytes += len(data)
        if progress:
            progress(index + 1, len(store))
    if len(skipped) == len(store):
        raise UsageError(f"{store.path}: all {len(store)} samples are bad, the first: {skipped[0]}")
    writer.finish()
    return Converted(
        num_samples=len(store) - len(skipped),
        num_bytes=num_bytes,
        source_format=store.format,
        skipped=tuple(skipped),
    )


def _checked(sample: Encoded, num_classes: int) -> bytes:
    """The sample's image file; raw pixels as PNG. Raises BadSample."""
    from PIL import Image

    if not 0 <= sample.label < num_classes:
        what = f"label {sample.label}, where there are {num_classes} classes"
        raise bad_sample(sample.where, what, index=sample.index)
    if isinstance(sample.data, bytes):
        check_image(sample)
        return sample.data
    file = io.BytesIO()
    Image.fromarray(sample.data).save(file, "PNG")
    return file.getvalue()


def _publish(whole: Path, target: Path, *, old: Path) -> None:
    """Gives the target its name; what had it before is moved to `old`."""
    if _is_list(target):
        _names_of(target).unlink(missing_ok=True)
        for file in sorted(whole.iterdir(), key=lambda file: file.name == target.name):  # the list last
            file.replace(target.with_name(file.name))
        return
    if target.exists():
        target.rename(old)
    whole.rename(target)
