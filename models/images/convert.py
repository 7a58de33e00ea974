"""From one format of image data to another: `dlscale data convert SOURCE TARGET --to FORMAT`."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dlscale.base.errors import UsageError, unknown
from dlscale.models.images import writers
from dlscale.models.images.decode import check_image
from dlscale.models.images.opening import open_store
from dlscale.models.images.store import (
    CLASSES_FILE,
    REMEDY,
    Encoded,
    ImageStore,
    bad_sample,
    extra_packages,
    reason,
)
from dlscale.models.samples import BadSample

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


def _writer(
    folder: Path, target: Path, to: str, *, store: ImageStore, num_shards: int | None
) -> writers.Writer:
    if num_shards is not None and to != "tfrecord":
        raise UsageError(f"--shards {num_shards} is for TFRecord files, not for --to {to}")
    if _is_list(target) and to != "list":
        raise UsageError(f"{target}: --to {to} makes a folder; choose a TARGET without .txt")
    if to == "folders":
        return writers.FoldersWriter(folder, store.classes)
    if to == "lmdb":
        return writers.LmdbWriter(folder, store.classes)
    if to == "list" and _is_list(target):
        beside = target.parent.resolve()
        return writers.list_in_place(folder, store.classes, name=target.name, beside=beside)
    if to == "list":
        return writers.list_of_copies(folder, store.classes)
    if to != "tfrecord":
        raise UsageError(unknown("format", to, FORMATS))
    shards = max(1, round(len(store) / _SAMPLES_PER_SHARD)) if num_shards is None else num_shards
    if not 1 <= shards <= min(len(store), 99_999):
        raise UsageError(f"--shards {shards}: {len(store)} samples make 1 to {min(len(store), 99_999)} files")
    return writers.TFRecordWriter(folder, store.classes, num_samples=len(store), num_shards=shards)


def _copy(
    store: ImageStore, writer: writers.Writer, *, skip_bad: bool, progress: Callable[[int, int], None] | None
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
