"""What the records of a study are, without reading each of them again.

<study>/index.jsonl has a line for each file under records/: its name, size and time, and what a list shows of it. The
index is a cache and never believed against the files: a line counts only if its checksum holds and the file still has
that size and time. What has no such line is read, and the index then written anew; where that cannot be done, the same
comes out a little later. Packed records need none: their pack has these columns itself.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from pathlib import Path

from pydantic_core import from_json

from dlscale.benchmarks import packed
from dlscale.benchmarks.record import SCHEMA_VERSION, Record
from dlscale.benchmarks.record_files import BadFile, entries, packed_too, read, uncollected
from dlscale.benchmarks.summary import Summary, summary
from dlscale.models.errors import UsageError
from dlscale.models.files import write_atomically

INDEX_FILE = "index.jsonl"

_Stamp = tuple[int, int]  # a file's size and time of change, nanoseconds
# Lines that another version wrote, about records that this one may not read, have other checksums.
_SEED = zlib.crc32(f"{SCHEMA_VERSION} {Summary._fields}".encode())


def summaries(study: Path) -> tuple[list[Summary], list[BadFile]]:
    """What a list shows of a study's records, packed or not, in no order, and the files that are not sound ones.

    Raises UsageError only if there is no folder of records, or a pack and no pyarrow to read it.
    """
    while True:
        before = packed.state(study)
        with uncollected():
            found = _summaries(study)
        if packed.state(study) == before:
            return found


def add(study: Path, path: Path, record: Record) -> None:
    """The index knows the record that was just written to `path`; if it cannot be told, it will find out."""
    with suppress(OSError):
        line = _line(path.name, _stamp(path.stat()), summary(record))
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
        in_pack = packed.summaries(study)
    except packed.UnsoundPackError as error:
        in_pack, bad = [], [*bad, BadFile(path=study / packed.PACK_FILE, reason=str(error))]
    return in_files + in_pack, [*bad, *differing]


def _loose(study: Path) -> tuple[dict[str, Summary], list[BadFile]]:
    """The files under records/, by name, and the unsound ones among them."""
    known = _read(study)
    current: dict[str, tuple[_Stamp, Summary]] = {}
    bad = []
    num_read = 0
    for entry in entries(study):
        line = known.get(entry.name)
        try:
            stamp = _stamp(entry.stat())
        except OSError:
            stamp = (-1, -1)
        if line and line[0] == stamp:
            current[entry.name] = line
            continue
        found = read(Path(entry.path))
        if isinstance(found, Record):
            current[entry.name] = stamp, summary(found)
            num_read += 1
        elif os.path.lexists(entry.path):  # not packed and removed meanwhile
            bad.append(found)
    if num_read or known.keys() != current.keys():
        _write(study, current)
    return {name: one for name, (_, one) in current.items()}, sorted(bad, key=lambda one: one.path)


def _read(study: Path) -> dict[str, tuple[_Stamp, Summary]]:
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


def _write(study: Path, current: dict[str, tuple[_Stamp, Summary]]) -> None:
    """The index is that, where it can be written."""
    content = b"".join(_line(name, stamp, one) for name, (stamp, one) in current.items())
    with suppress(UsageError):
        write_atomically(study / INDEX_FILE, content)


def _line(name: str, stamp: _Stamp, values: Summary) -> bytes:
    text = json.dumps([name, *stamp, *values]).encode()
    return b"%b %b\n" % (_checksum(text), text)


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text, _SEED)


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_size, found.st_mtime_ns
