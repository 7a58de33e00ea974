"""Packs a study's records into one Parquet file and back; a kill at any moment loses no record.

A row is a record: its file byte by byte, and columns for other tools. Rows are in the order of their files' names.
Nothing is removed before its copy was written, fsynced, read back and compared. Until then records exist twice, which
readers accept as long as both copies are equal (`files.py`); repeating the command finishes the work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import IO, Any

from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder
from dlscale.benchmarks.records import files
from dlscale.benchmarks.records.files import GROUP_ROWS, PACK_FILE, VERSION_KEY, InvalidPackError
from dlscale.benchmarks.records.record import SCHEMA_VERSION, Record
from dlscale.benchmarks.records.store import Store

PAGE_BYTES = 8 << 20  # compressed together: records are similar, so large pages compress well
ZSTD_LEVEL = 6  # 9 takes twice as long and saves 2 %


def pack(store: Store) -> int:
    """Move all records of a study into its pack, and return the number of newly packed ones.

    Raises UsageError, and changes nothing, if a record is invalid, another dlscale is measuring into the study, the
    disk is full, or pyarrow is not installed.
    """
    path, folder = store.folder / PACK_FILE, store.records_folder
    with store.lock(), _one_line_errors(path):
        names = set(files.file_names(store.folder))
        new = sorted(names - _packed_too(store, names))
        if new:
            _write_pack(path, folder, new)
        with _same_time(folder):
            for name in names:
                (folder / name).unlink()
        return len(new)


def unpack(store: Store) -> int:
    """Turn all packed records of a study back into the original files, and return their number.

    Raises UsageError, and keeps the pack, if a file differs from the record of its name in the pack, another dlscale is
    measuring into the study, the disk is full, or pyarrow is not installed.
    """
    path, folder = store.folder / PACK_FILE, store.records_folder
    with store.lock(), _one_line_errors(folder):
        if not folder.is_dir():
            make_folder(folder)
        there = _packed_too(store, set(files.file_names(store.folder)))
        num_new = 0
        with _same_time(folder):
            for name, content in files.packed_contents(path):
                if name not in there:
                    with _replaced(folder / name, folder / f".{name}.tmp") as file:
                        file.write(content)
                    num_new += 1
        os.sync()  # a single sync for all files
        for name, content in files.packed_contents(path):
            if (folder / name).read_bytes() != content:
                raise UsageError(f"{folder / name} is not what was written to it; {path} is kept")
        path.unlink(missing_ok=True)
        _sync(store.folder)
        return num_new


def _packed_too(store: Store, names: set[str]) -> set[str]:
    """The files among `names` that are also packed. Raises UsageError if one differs from its packed copy."""
    twice = set()
    for name, content in files.packed_contents(store.folder / PACK_FILE):
        if name in names:
            twice.add(name)
            if bad_file := files.differing(store.records_folder / name, content):
                raise UsageError(f"record {bad_file.path} {bad_file.reason}")
    return twice


def _write_pack(path: Path, folder: Path, new: list[str]) -> None:
    """Add the files `new` in `folder` to the pack; it is replaced after a comparison with them."""

    def contents() -> Iterator[tuple[str, bytes]]:
        return merge(files.packed_contents(path), ((name, (folder / name).read_bytes()) for name in new))

    temporary = path.with_name(
        f".{PACK_FILE}.tmp"
    )  # a fixed name: the next packing replaces what a kill left behind
    with _replaced(path, temporary) as file:
        _write_rows(file, (_row(folder / name, content) for name, content in contents()))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(
            file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED
        )  # so that the comparison reads the disk, not the page cache
        for (_, copy), (name, original) in zip(files.packed_contents(temporary), contents(), strict=True):
            if copy != original:
                raise UsageError(
                    f"record {name} changed while it was packed; nothing was removed, pack again"
                )
    _sync(path.parent)


def _write_rows(file: IO[bytes], rows: Iterator[dict[str, Any]]) -> None:
    """Write a pack, in groups of rows that fit into memory. Raises UsageError without pyarrow."""
    pa, pq = files.import_pyarrow("packing records")
    schema = pa.schema(
        [
            ("case", pa.string()),
            ("attempt", pa.int32()),
            ("good", pa.bool_()),
            ("failure_kind", pa.string()),
            ("failure_message", pa.string()),
            ("started_at", pa.string()),
            ("json", pa.binary()),
        ],
        metadata={VERSION_KEY: str(SCHEMA_VERSION)},
    )
    columns = schema.names[:-1]
    options = {"use_dictionary": columns, "write_statistics": columns, "write_page_checksum": True}
    with pq.ParquetWriter(
        file, schema, compression="zstd", compression_level=ZSTD_LEVEL, data_page_size=PAGE_BYTES, **options
    ) as writer:
        while group := list(islice(rows, GROUP_ROWS)):
            writer.write_table(pa.Table.from_pylist(group, schema))


def _row(path: Path, content: bytes) -> dict[str, Any]:
    """The row of the record in that file. Raises UsageError if it is invalid, or has the wrong name."""
    record = files.parse_record(path, content)
    if not isinstance(record, Record):
        raise UsageError(f"record {path} is invalid: {record.reason}")
    summary = files.summary(record)
    if summary.file_name != path.name:
        raise UsageError(
            f"record {path} is that of {summary.file_name}; rename or delete it, then pack again"
        )
    return {**summary._asdict(), "good": record.good, "started_at": record.started_at, "json": content}


@contextmanager
def _replaced(path: Path, temporary: Path) -> Iterator[IO[bytes]]:
    """A file at `temporary` that replaces `path` if the block succeeds."""
    try:
        temporary.unlink(missing_ok=True)  # what a kill left behind, or a link that somebody put there
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _same_time(folder: Path) -> Iterator[None]:
    """Preserve the folder's modification time, which says when a study was last measured."""
    before = folder.stat()
    yield
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    """Turn errors of the disk or of a pack into a UsageError."""
    try:
        yield
    except InvalidPackError as error:
        raise UsageError(f"{path.parent / PACK_FILE} {error}") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; no record was lost") from None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
