"""Reading records from a study's folder. A file that is no sound record is named, never skipped silently.

Records are files under records/, or rows of the study's pack (`packed.py`), or both; who reads need not know.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dlscale.benchmarks import packed
from dlscale.benchmarks.record import SCHEMA_VERSION, Parity, Record, Window
from dlscale.models.errors import UsageError

RECORDS_FOLDER = "records"
PARITY_FILE = "parity.json"
PARITIES = TypeAdapter(list[Parity])
_GIVEN = set(Window.model_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadFile:
    """A file among the records that is none, and why."""

    path: Path
    reason: str


def load_records(study: Path) -> tuple[list[Record], list[BadFile]]:
    """The records of a study, packed or not, ordered by file name, and the files that are not sound ones.

    Raises UsageError only if there is no folder of records, or a pack and no pyarrow to read it.
    """
    while True:
        before = packed.state(study)
        with uncollected():
            found = _load(study)
        if packed.state(study) == before:
            return found


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector of cycles, of which records have none: it would look at each of them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _load(study: Path) -> tuple[list[Record], list[BadFile]]:
    names = set(file_names(study))
    twice, bad = packed_too(study, names)
    records: dict[str, Record] = {}
    try:
        for name, content in packed.contents(study / packed.PACK_FILE):
            _keep(parse(study / packed.PACK_FILE / name, content), name, records, bad)
    except packed.UnsoundPackError as error:
        bad.append(BadFile(path=study / packed.PACK_FILE, reason=str(error)))
    for name in names - twice:
        path = study / RECORDS_FOLDER / name
        found = read(path)
        if isinstance(found, Record) or os.path.lexists(path):  # not packed and removed meanwhile
            _keep(found, name, records, bad)
    return [records[name] for name in sorted(records)], sorted(bad, key=lambda one: one.path)


def file_names(study: Path) -> list[str]:
    """The names of the files under records/, in no order. Raises UsageError as `entries`."""
    return [entry.name for entry in entries(study)]


def entries(study: Path) -> list[os.DirEntry[str]]:
    """The files under records/, in no order. Raises UsageError only if there is neither such a folder nor a pack."""
    folder = study / RECORDS_FOLDER
    if not measured(study):
        raise UsageError(
            f"no records in {study}: {folder} is not a folder; name the folder that a study wrote"
        )
    try:
        with os.scandir(folder) as found:
            # One that begins with a dot is being written.
            return [entry for entry in found if entry.name.endswith(".json") and entry.name[0] != "."]
    except FileNotFoundError:  # all are packed, and whoever copied the study left out its empty folder
        return []


def measured(study: Path) -> bool:
    """Whether a study's folder is one that records were, or could have been, written into."""
    return (study / RECORDS_FOLDER).is_dir() or (study / packed.PACK_FILE).exists()


def packed_too(study: Path, names: set[str]) -> tuple[set[str], list[BadFile]]:
    """Those of the files under records/ that are packed as well, and those of them that say something else there.

    Equal ones are what is left when packing was interrupted; of two that differ nobody can say which one holds.
    """
    if not names:
        return set(), []
    try:
        twice = names.intersection(one.file_name for one in packed.summaries(study))
    except packed.UnsoundPackError:  # told by who reads all of it
        return set(), []
    bad = []
    for name, content in packed.contents(study / packed.PACK_FILE) if twice else ():
        path = study / RECORDS_FOLDER / name
        if name in twice and not _holds(path, content):
            reason = (
                f"differs from the record of that name in {packed.PACK_FILE}; delete it if that one is right"
            )
            bad.append(BadFile(path=path, reason=reason))
    return twice, bad


def read(path: Path) -> Record | BadFile:
    """The record in that file."""
    try:
        return parse(path, path.read_bytes())
    except OSError as error:
        return BadFile(path=path, reason=f"cannot be read: {error.strerror}")


def parse(path: Path, content: bytes) -> Record | BadFile:
    """The record that `content` is; `path` is where it lies."""
    try:
        return _lean(Record.model_validate_json(content))
    except ValidationError as error:
        return BadFile(path=path, reason=_why_unsound(content, error))


def _lean(record: Record) -> Record:
    """The record with one set of field names for all of its windows.

    pydantic keeps with each object which of its fields were given, which takes half of a window's memory. All are:
    records are written whole.
    """
    for window in record.windows:
        object.__setattr__(window, "__pydantic_fields_set__", _GIVEN)
    return record


def load_parity(study: Path) -> list[Parity]:
    """The parity gate's verdicts in a study's folder; none where it never ran. Raises UsageError if unsound."""
    path = study / PARITY_FILE
    if not path.exists():
        return []
    try:
        return PARITIES.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(
            f"{path} is unsound ({type(error).__name__}); delete it, and the next run writes it again"
        ) from None


def _keep(found: Record | BadFile, name: str, records: dict[str, Record], bad: list[BadFile]) -> None:
    if isinstance(found, Record):
        records[name] = found
    else:
        bad.append(found)


def _holds(path: Path, content: bytes) -> bool:
    """Whether that file holds exactly that; one that is gone says nothing else."""
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return not path.is_symlink()
    except OSError:
        return False


def _why_unsound(text: bytes, error: ValidationError) -> str:
    try:
        content = json.loads(text)
    except ValueError:  # not UTF-8, or not JSON
        return "not complete JSON; restore it, or delete it so that the case is run again"
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version is not None and version != SCHEMA_VERSION:
        return f"schema version {version!r}; this version of dlscale reads {SCHEMA_VERSION}"
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "top level"
    return f"not a record: {place}: {first['msg']}"
