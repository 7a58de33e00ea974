"""Reading records from a study's folder. A file that is no valid record is named, never skipped silently.

Records are files under records/, or rows of the study's pack (`archive.py`), or both; who reads need not know.

<study>/index.jsonl says what the records are without reading each of them again: a line for each file under
records/, with its name, size and time, and what a list shows of it. The index is a cache and never believed against
the files: a line counts only if its checksum holds and the file still has that size and time. What has no such line
is read, and the index then written anew; where that cannot be done, the same comes out a little later. Packed
records need none.
"""

from __future__ import annotations

import gc
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.benchmarks.records import archive
from dlscale.benchmarks.records.archive import Summary, summary
from dlscale.benchmarks.records.record import SCHEMA_VERSION, Parity, Record, Window

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
        before = archive.pack_state(study)
        with uncollected():
            found = _load(study)
        if archive.pack_state(study) == before:
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
        for name, content in archive.packed_contents(study / archive.PACK_FILE):
            _keep(parse_record(study / archive.PACK_FILE / name, content), name, records, bad)
    except archive.InvalidPackError as error:
        bad.append(BadFile(path=study / archive.PACK_FILE, reason=str(error)))
    for name in names - twice:
        path = study / RECORDS_FOLDER / name
        found = read_record(path)
        if isinstance(found, Record) or os.path.lexists(path):  # not packed and removed meanwhile
            _keep(found, name, records, bad)
    return [records[name] for name in sorted(records)], sorted(bad, key=lambda one: one.path)


def file_names(study: Path) -> list[str]:
    """The names of the files under records/, in no order. Raises UsageError as `entries`."""
    return [entry.name for entry in record_entries(study)]


def record_entries(study: Path) -> list[os.DirEntry[str]]:
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
    return (study / RECORDS_FOLDER).is_dir() or (study / archive.PACK_FILE).exists()


def packed_too(study: Path, names: set[str]) -> tuple[set[str], list[BadFile]]:
    """Those of the files under records/ that are packed as well, and those of them that say something else there.

    Equal ones are what is left when packing was interrupted; of two that differ nobody can say which one holds.
    """
    if not names:
        return set(), []
    try:
        twice = names.intersection(one.file_name for one in archive.packed_summaries(study))
    except archive.InvalidPackError:  # told by who reads all of it
        return set(), []
    bad = []
    for name, content in archive.packed_contents(study / archive.PACK_FILE) if twice else ():
        path = study / RECORDS_FOLDER / name
        if name in twice and not _holds(path, content):
            reason = (
                f"differs from the record of that name in {archive.PACK_FILE}; delete it if that one is right"
            )
            bad.append(BadFile(path=path, reason=reason))
    return twice, bad


def read_record(path: Path) -> Record | BadFile:
    """The record in that file."""
    try:
        return parse_record(path, path.read_bytes())
    except OSError as error:
        return BadFile(path=path, reason=f"cannot be read: {error.strerror}")


def parse_record(path: Path, content: bytes) -> Record | BadFile:
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


INDEX_FILE = "index.jsonl"

_Stamp = tuple[int, int]  # a file's size and time of change, nanoseconds
# Lines that another version wrote, about records that this one may not read, have other checksums.
_SEED = zlib.crc32(f"{SCHEMA_VERSION} {Summary._fields}".encode())


def summaries(study: Path) -> tuple[list[Summary], list[BadFile]]:
    """What a list shows of a study's records, packed or not, in no order, and the files that are not sound ones.

    Raises UsageError only if there is no folder of records, or a pack and no pyarrow to read it.
    """
    while True:
        before = archive.pack_state(study)
        with uncollected():
            found = _summaries(study)
        if archive.pack_state(study) == before:
            return found


def add_to_index(study: Path, path: Path, record: Record) -> None:
    """The index knows the record that was just written to `path`; if it cannot be told, it will find out."""
    with suppress(OSError):
        line = _index_line(path.name, _stamp(path.stat()), summary(record))
        descriptor = os.open(study / INDEX_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)  # in one piece, whoever else appends
        finally:
            os.close(descriptor)


def _summaries(study: Path) -> tuple[list[Summary], list[BadFile]]:
    found, bad = _loose(study)
    twice, differing = packed_too(study, set(found))
    in_files = [one for name, one in found.items() if name not in twice]
    try:
        in_pack = archive.packed_summaries(study)
    except archive.InvalidPackError as error:
        in_pack, bad = [], [*bad, BadFile(path=study / archive.PACK_FILE, reason=str(error))]
    return in_files + in_pack, [*bad, *differing]


def _loose(study: Path) -> tuple[dict[str, Summary], list[BadFile]]:
    """The files under records/, by name, and the unsound ones among them."""
    known = _read_index(study)
    current: dict[str, tuple[_Stamp, Summary]] = {}
    bad = []
    num_read = 0
    for entry in record_entries(study):
        line = known.get(entry.name)
        try:
            stamp = _stamp(entry.stat())
        except OSError:
            stamp = (-1, -1)
        if line and line[0] == stamp:
            current[entry.name] = line
            continue
        found = read_record(Path(entry.path))
        if isinstance(found, Record):
            current[entry.name] = stamp, summary(found)
            num_read += 1
        elif os.path.lexists(entry.path):  # not packed and removed meanwhile
            bad.append(found)
    if num_read or known.keys() != current.keys():
        _write_index(study, current)
    return {name: one for name, (_, one) in current.items()}, sorted(bad, key=lambda one: one.path)


def _read_index(study: Path) -> dict[str, tuple[_Stamp, Summary]]:
    """The lines of the index by file name; of two for one file the later."""
    try:
        lines = (study / INDEX_FILE).read_bytes().split(b"\n")
    except OSError:
        return {}
    known = {}
    for line in lines:
        checksum, _, text = line.partition(b" ")
        if checksum == _checksum(text):
            name, size, changed, *values = from_json(text)  # half the time of json's
            known[name] = (size, changed), Summary(*values)
    return known


def _write_index(study: Path, current: dict[str, tuple[_Stamp, Summary]]) -> None:
    """The index is that, where it can be written."""
    content = b"".join(_index_line(name, stamp, one) for name, (stamp, one) in current.items())
    with suppress(UsageError):
        write_atomically(study / INDEX_FILE, content)


def _index_line(name: str, stamp: _Stamp, values: Summary) -> bytes:
    text = json.dumps([name, *stamp, *values]).encode()
    return b"%b %b\n" % (_checksum(text), text)


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text, _SEED)


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_size, found.st_mtime_ns
