"""Reads a study's records, the files records/<case>.<attempt>.json; an invalid one is reported, never skipped."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from pydantic import BaseModel, PositiveInt, ValidationError

from dlscale.base.definitions import first_problem
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.base.parsing import parse_json
from dlscale.benchmarks.records.cell import Case, Cell
from dlscale.benchmarks.records.record import SCHEMA_VERSION, Failure, Record

RECORDS_FOLDER = "records"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BadFile:
    """A file among the records that is not a valid record, and why."""

    path: Path
    reason: str


class Summary(NamedTuple):
    """The fields of an attempt that lists show; kept small, as a study may have very many attempts."""

    case: str
    attempt: int
    failure_kind: str | None
    failure_message: str | None

    @property
    def good(self) -> bool:
        return self.failure_kind is None

    @property
    def file_name(self) -> str:
        return file_name(self.case, self.attempt)


class _Header(BaseModel):
    """The fields behind a `Summary`. A record's other fields need only be JSON: this takes a third of the time."""

    schema_version: Literal[7]
    case: Case
    attempt: PositiveInt
    failure: Failure | None


def summary(record: Record | _Header) -> Summary:
    """The summary of a record."""
    failure = record.failure
    kind, message = (failure.kind, failure.message) if failure else (None, None)
    case_id = f"{_cell_id(record.case.cell.model_dump_json())}-{record.case.block:02d}"  # as Case.id
    return Summary(case_id, record.attempt, kind, message)


@cache
def _cell_id(cell: str) -> str:
    """The id of a cell, from its JSON. Cached: an id takes 10 µs, and many records share a cell."""
    return Cell.model_validate_json(cell).id


def file_name(case: str, attempt: int) -> str:
    """The name of that attempt's file."""
    return f"{case}.{attempt}.json"


def parse_file_name(name: str) -> tuple[str, int] | None:
    """(case, attempt) from the name of a record's file; None if it is not such a name."""
    case, _, attempt = name.removesuffix(".json").rpartition(".")
    return (case, int(attempt)) if case and attempt.isdecimal() else None


def load_records(study: Path) -> tuple[list[Record], list[BadFile]]:
    """The records of a study, ordered by file name, and the invalid files, ordered by path.

    Raises UsageError only if there is no folder of records.
    """
    records, bad_files = _read_all(study, _parse_whole)
    return [records[name] for name in sorted(records)], bad_files


def summaries(study: Path) -> tuple[list[Summary], list[BadFile]]:
    """The summaries of a study's records, in no order, and the invalid files, ordered by path.

    Damage outside the summary's fields is detected only if the file is not valid JSON. Raises UsageError like
    `load_records`.
    """
    by_name, bad_files = _read_all(study, lambda content: summary(_Header.model_validate_json(content)))
    return list(by_name.values()), bad_files


def read_record(path: Path) -> Record | BadFile:
    """The record in that file."""
    try:
        return parse_record(path, read_regular(path))
    except OSError as error:
        return _unreadable(path, error)


def parse_record(path: Path, content: bytes) -> Record | BadFile:
    """The record in `content`, which was read from `path`."""
    try:
        return _parse_whole(content)
    except ValueError as error:
        return BadFile(path=path, reason=_why_invalid(content, error))


def measured(study: Path) -> bool:
    """Whether a study's folder has a folder for records."""
    return (study / RECORDS_FOLDER).is_dir()


def file_names(study: Path) -> list[str]:
    """The names of the files under records/, in no order. Raises UsageError without that folder."""
    folder = study / RECORDS_FOLDER
    if not measured(study):
        raise UsageError(
            f"no records in {study}: {folder} is not a folder; name the folder that a study wrote"
        )
    # A name with a leading dot is a file that is being written.
    return [name for name in os.listdir(folder) if name.endswith(".json") and name[0] != "."]


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the garbage collector, which would visit every record repeatedly; records have no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_all(study: Path, parse: Callable[[bytes], T]) -> tuple[dict[str, T], list[BadFile]]:
    """The result of `parse` for each record, by file name, and the invalid files, ordered by path."""
    parsed: dict[str, T] = {}
    bad_files: list[BadFile] = []
    with uncollected():
        for name in file_names(study):
            path = study / RECORDS_FOLDER / name
            try:
                content = read_regular(path)
            except OSError as error:
                bad_files.append(_unreadable(path, error))
                continue
            try:
                parsed[name] = parse(content)
            except ValueError as error:
                bad_files.append(BadFile(path=path, reason=_why_invalid(content, error)))
    return parsed, sorted(bad_files, key=lambda bad_file: bad_file.path)


def _parse_whole(content: bytes) -> Record:
    """The record. Windows, nearly all of the text, have separate limits."""
    before, _, after = content.partition(b'"windows":{')
    if _has_long_number(before) or _has_long_number(after[after.find(b"}") + 1 :]):
        raise ValueError("a number has more than 18 digits")  # no array of whole numbers is sure to hold it
    return Record.model_validate_json(content)


def _has_long_number(text: bytes) -> bool:
    return bool(_LONG.search(text) and _LONG.search(_STRING.sub(b"", text)))


_LONG = re.compile(rb"[:\[,]\s*-?\d{19}")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


def _unreadable(path: Path, error: OSError) -> BadFile:
    return BadFile(path=path, reason=f"cannot be read: {error.strerror}")


def _why_invalid(text: bytes, error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    try:
        content = parse_json(text)
    except ValueError:  # not UTF-8, or not JSON
        return "not complete JSON; restore it, or delete it so that the case is run again"
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version is not None and version != SCHEMA_VERSION:
        return f"schema version {version!r}; this version of dlscale reads {SCHEMA_VERSION}"
    return f"not a record: {first_problem(error)}"
