"""The many records of a study in one file, <study>/records.parquet, and the summaries that lists of records show.

A row of the file is a record: the columns that lists are made of (`Summary`), and the record's file byte by byte.
Rows are in the order of their files' names, in groups that fit into memory whatever their number. Parquet's
checksums of pages are written and checked: a damaged record is an error, never a wrong number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.record import SCHEMA_VERSION, Record


class Summary(NamedTuple):
    """One attempt: whose it is, and why it failed if it did. A study may have very many of these."""

    case: str
    attempt: int
    failure_kind: str | None
    failure_message: str | None

    @property
    def good(self) -> bool:
        """True if the case is done."""
        return self.failure_kind is None

    @property
    def file_name(self) -> str:
        """Under which the record lies among the others."""
        return file_name(self.case, self.attempt)


def summary(record: Record) -> Summary:
    """What a list shows of that record."""
    failure = record.failure
    return Summary(
        record.case.id,
        record.attempt,
        failure.kind if failure else None,
        failure.message if failure else None,
    )


def file_name(case: str, attempt: int) -> str:
    """The name of that attempt's record."""
    return f"{case}.{attempt}.json"


def parse_file_name(name: str) -> tuple[str, int] | None:
    """(case, attempt) of a record's file; None if the name is not one that records have."""
    case, _, attempt = name.removesuffix(".json").rpartition(".")
    return (case, int(attempt)) if case and attempt.isdecimal() else None


PACK_FILE = "records.parquet"
GROUP_ROWS = 1000  # 10 MB of JSON or so
PAGE_BYTES = 8 << 20  # compressed together: records are alike, and a large page becomes a small file
ZSTD_LEVEL = 6  # 9 takes twice the time for 2 % less
VERSION_KEY = b"dlscale.record_schema_version"
SUMMARY_COLUMNS = ["case", "attempt", "failure_kind", "failure_message"]


class PackedRecord(NamedTuple):
    """A record as it is packed."""

    summary: Summary
    started_at: str
    content: bytes


class InvalidPackError(Exception):
    """A pack that is damaged, or of another version; says why."""


def packed_record(record: Record, content: bytes) -> PackedRecord:
    """The row of a record that was read from `content`."""
    return PackedRecord(summary(record), record.started_at, content)


def pack_state(study: Path) -> tuple[int, ...] | None:
    """Equal as long as the study's pack is the same file; None without one."""
    try:
        found = (study / PACK_FILE).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def write_pack(file: IO[bytes], rows: Iterable[PackedRecord]) -> None:
    """Write a pack. Raises UsageError without pyarrow."""
    pa, pq = _pyarrow("packing records")
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
    rows = iter(rows)
    with pq.ParquetWriter(
        file, schema, compression="zstd", compression_level=ZSTD_LEVEL, data_page_size=PAGE_BYTES, **options
    ) as writer:
        while group := [_values(one) for one in islice(rows, GROUP_ROWS)]:
            rows_by_name = [dict(zip(schema.names, values, strict=True)) for values in group]
            writer.write_table(pa.Table.from_pylist(rows_by_name, schema))


def packed_summaries(study: Path) -> list[Summary]:
    """What lists show of the packed records; none without a pack.

    Raises UnsoundPackError, and UsageError without pyarrow.
    """
    return [Summary(*values) for values in _rows(study / PACK_FILE, SUMMARY_COLUMNS)]


def packed_contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """(file name, bytes) of each record in the pack at `path`, ordered by name; none if there is no such file.

    Raises UnsoundPackError, and UsageError without pyarrow.
    """
    for case, attempt, content in _rows(path, ["case", "attempt", "json"]):
        yield file_name(case, attempt), content


def packed_content(study: Path, case: str, attempt: int) -> bytes | None:
    """One record of a study's pack, without reading all the others; None if it is not there.

    Raises UnsoundPackError, and UsageError without pyarrow.
    """
    path = study / PACK_FILE
    if not path.exists():
        return None
    _, pq = _pyarrow(f"reading {path}")
    with _errors():
        same = [("case", "=", case), ("attempt", "=", attempt)]
        found = pq.read_table(path, columns=["json"], filters=same, page_checksum_verification=True)
        return bytes(found["json"][0].as_py()) if found.num_rows else None


def _values(one: PackedRecord) -> tuple[object, ...]:
    case, attempt, kind, message = one.summary
    return case, attempt, one.summary.good, kind, message, one.started_at, one.content


def _rows(path: Path, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    """Those columns of the pack at `path`, row by row."""
    if not path.exists():
        return
    _, pq = _pyarrow(f"reading {path}")
    with _errors(), pq.ParquetFile(path, page_checksum_verification=True) as file:
        version = (file.schema_arrow.metadata or {}).get(VERSION_KEY, b"?").decode()
        if version != str(SCHEMA_VERSION):
            raise InvalidPackError(
                f"schema version {version}; this version of dlscale reads {SCHEMA_VERSION}"
            )
        for batch in file.iter_batches(GROUP_ROWS, columns=columns):
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)


@contextmanager
def _errors() -> Iterator[None]:
    """What pyarrow says of a damaged file, in one line."""
    pyarrow, _ = _pyarrow("reading a pack")
    try:
        yield
    except (OSError, ValueError, KeyError, pyarrow.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise InvalidPackError(f"cannot be read: {reason}; restore it from a copy") from None


def _pyarrow(what: str) -> tuple[Any, Any]:
    """Pyarrow and its Parquet module. Raises UsageError if it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise UsageError(
            f"{what} needs pyarrow, which is not installed; pip install 'dlscale[parquet]'"
        ) from None
    return pyarrow, pyarrow.parquet
