"""Packing a study's records into one file, and back, so that a kill at any moment loses none.

Nothing is removed before its copy was written, fsynced, read back and compared with it. In between records are there
twice, which readers allow as long as both say the same (`record_files.py`); the same command then goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder
from dlscale.benchmarks.records import archive
from dlscale.benchmarks.records.archive import PACK_FILE, PackedRecord, summary
from dlscale.benchmarks.records.files import file_names, packed_too, parse_record
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.store import Store


def pack(store: Store) -> int:
    """All records of a study lie in its pack and nowhere else; returns how many were not in it before.

    Raises UsageError, and changes nothing, if one of them is unsound, another dlscale measures into the study, there is
    no space, or pyarrow is not installed.
    """
    with store.lock(), _told(store.folder / PACK_FILE):
        names = set(file_names(store.folder))
        new = names - _packed_already(store, names)
        if new:
            _write(store, sorted(new))
        _remove(store.records_folder, names)
        return len(new)


def unpack(store: Store) -> int:
    """All records of a study are files, as they were before they were packed; returns how many came back.

    Raises UsageError, and keeps the pack, if one of them is there with other words, another dlscale measures into the
    study, there is no space, or pyarrow is not installed.
    """
    path, folder = store.folder / PACK_FILE, store.records_folder
    with store.lock(), _told(folder):
        if not folder.is_dir():
            make_folder(folder)
        there = _packed_already(store, set(file_names(store.folder)))
        num_new = 0
        with _kept_time(folder):
            for name, content in archive.packed_contents(path):
                if name not in there:
                    _write_file(folder, name, content)
                    num_new += 1
        os.sync()  # once for all of them
        for name, content in archive.packed_contents(path):
            if (folder / name).read_bytes() != content:
                raise UsageError(f"{folder / name} is not what was written to it; {path} is kept")
        path.unlink(missing_ok=True)
        _sync(store.folder)
        return num_new


def _packed_already(store: Store, names: set[str]) -> set[str]:
    """Those of the files that are packed, and say the same there. Raises UsageError if one says something else."""
    twice, differing = packed_too(store.folder, names)
    if differing:
        raise UsageError(f"record {differing[0].path} {differing[0].reason}")
    return twice


def _write(store: Store, new: list[str]) -> None:
    """The pack holds what it held and the files `new`; it is replaced whole, once it was compared with them."""
    path = store.folder / PACK_FILE
    temporary = path.with_name(f".{PACK_FILE}.tmp")  # one name: who holds the lock clears what a kill left
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            archive.write_pack(file, (_row(store, name, content) for name, content in _all(store, new)))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # the disk's words, not memory's
        for found, wanted in zip(archive.packed_contents(temporary), _all(store, new), strict=True):
            if found != wanted:
                raise UsageError(
                    f"record {wanted[0]} changed while it was packed; nothing was removed, pack again"
                )
        temporary.rename(path)
        _sync(store.folder)
    finally:
        temporary.unlink(missing_ok=True)


def _all(store: Store, new: list[str]) -> Iterator[tuple[str, bytes]]:
    """(file name, bytes) of what is packed and of the files `new`, ordered by name, read one by one."""
    files = ((name, (store.records_folder / name).read_bytes()) for name in new)
    return merge(archive.packed_contents(store.folder / PACK_FILE), files)


def _row(store: Store, name: str, content: bytes) -> PackedRecord:
    """What is packed of a record. Raises UsageError if it is none, or has another's name."""
    path = store.records_folder / name
    found = parse_record(path, content)
    if not isinstance(found, Record):
        raise UsageError(f"record {path} is unsound: {found.reason}")
    if summary(found).file_name != name:
        raise UsageError(
            f"record {path} is that of {summary(found).file_name}; rename or delete it, then pack again"
        )
    return archive.packed_record(found, content)


def _write_file(folder: Path, name: str, content: bytes) -> None:
    """The file is there whole or not at all; whether it is on the disk yet is asked once for all."""
    temporary = folder / f".{name}.tmp"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.rename(folder / name)
    finally:
        temporary.unlink(missing_ok=True)


def _remove(folder: Path, names: set[str]) -> None:
    with _kept_time(folder):
        for name in names:
            (folder / name).unlink()


@contextmanager
def _kept_time(folder: Path) -> Iterator[None]:
    """The folder's time says when it was measured into last (`commands/studies.py`): packing measures nothing."""
    before = folder.stat()
    yield
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What can go wrong with a disk, and a damaged pack, in one line."""
    try:
        yield
    except archive.InvalidPackError as error:
        raise UsageError(f"{path.parent / PACK_FILE} {error}") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; no record was lost") from None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
