"""TFRecord files by ImageNet's convention, read at random.

A file is a sequence of records: length (8 bytes, little-endian), its masked CRC32C (4), the data, their masked
CRC32C (4). Each record is a tensorflow.train.Example, a mapping from names to lists of bytes or of integers, with
`image/encoded` (a JPEG or PNG) and `image/class/label`. Examples are read and written by protocol buffers' wire
format here, because the generated classes come with TensorFlow only.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.models.images.store import CLASSES_FILE, Encoded, OpenFiles, bad_sample, read_classes, reason

Values = list[bytes] | list[int]

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_BYTES_LIST, _INT64_LIST = 1, 3


def write_example(features: Mapping[str, Values]) -> bytes:
    """The message with these features; each list has values of one type."""
    entries = []
    for name, values in features.items():
        texts = [value for value in values if isinstance(value, bytes)]
        numbers = [value for value in values if isinstance(value, int)]
        if texts:
            feature = _field(_BYTES_LIST, b"".join(_field(1, text) for text in texts))
        else:
            packed = b"".join(_varint(number & (1 << 64) - 1) for number in numbers)
            feature = _field(_INT64_LIST, _field(1, packed))
        entries.append(_field(1, _field(1, name.encode()) + _field(2, feature)))
    return _field(1, b"".join(entries))


def read_example(message: bytes) -> dict[str, Values]:
    """The features of bytes and of integers, by name; those of floats are left out.

    Raises ValueError if the message is malformed.
    """
    features: dict[str, Values] = {}
    for entry in _members(memoryview(message), path=(1, 1)):
        name, value = b"", memoryview(b"")
        for number, field in _fields(entry):
            if number == 1 and not isinstance(field, int):
                name = bytes(field)
            elif number == 2 and not isinstance(field, int):
                value = field
        for number, field in _fields(value):
            if number == _BYTES_LIST and not isinstance(field, int):
                features[name.decode()] = [bytes(text) for text in _members(field, path=(1,))]
            elif number == _INT64_LIST and not isinstance(field, int):
                features[name.decode()] = list(_integers(field))
    return features


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the highest bit says that another byte follows."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _members(message: memoryview, *, path: tuple[int, ...]) -> Iterator[memoryview]:
    """The contents of all fields that are reached by these numbers, one for each level of nesting."""
    for number, field in _fields(message):
        if number == path[0] and not isinstance(field, int):
            if len(path) > 1:
                yield from _members(field, path=path[1:])
            else:
                yield field


def _integers(message: memoryview) -> Iterator[int]:
    for number, field in _fields(message):
        if number != 1:
            continue
        if isinstance(field, int):  # not packed, as some writers have it
            yield _signed(field)
            continue
        place = 0
        while place < len(field):
            value, place = _read_varint(field, place)
            yield _signed(value)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Number and value of each field: an integer for a varint, else its bytes, which are not copied."""
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        kind = key & 7
        if kind == _VARINT:
            value, place = _read_varint(message, place)
            yield key >> 3, value
            continue
        if kind == _LENGTH:
            length, place = _read_varint(message, place)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            length = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"no tensorflow.train.Example: a field of kind {kind}")
        if place + length > len(message):
            raise ValueError(
                f"no tensorflow.train.Example: a field of {length} bytes ends beyond the message"
            )
        yield key >> 3, message[place : place + length]
        place += length


def _read_varint(message: memoryview, place: int) -> tuple[int, int]:
    """The number at `place`, and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("no tensorflow.train.Example: a number does not end")


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


FIRST_LABEL = 1  # of ImageNet's convention
ENCODED, LABEL, FIRST_LABEL_KEY = "image/encoded", "image/class/label", "image/class/first_label"
FILE_NAME, CLASS_NAME, FORMAT = "image/filename", "image/class/text", "image/format"
T = TypeVar("T", bytes, int)
_HEADER = struct.Struct("<QI")
_OVERHEAD_BYTES = _HEADER.size + 4  # of a record, besides its data


def masked_crc(data: bytes) -> int:
    """CRC32C, rotated and shifted: a CRC of data that hold their own CRC would be weak."""
    import google_crc32c

    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame_record(data: bytes) -> bytes:
    """`data` as a record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return b"".join(
        (length, struct.pack("<I", masked_crc(length)), data, struct.pack("<I", masked_crc(data)))
    )


class TFRecordStore:
    """The records of one or many files, as one sequence; the files may be of unequal length.

    On opening, every record's header is read once and its CRC checked; data and their CRC on reading. `first_label`
    says how labels count where records do not; without it, from 1.

    Raises UsageError for a file that is cut off or damaged, unless bad samples are skipped: then the record that
    it happens in cannot be read, and those behind it in the same file are not there.
    """

    format = "TFRecord"

    def __init__(
        self, path: Path, files: list[Path], *, skip_bad: bool = False, first_label: int | None = None
    ) -> None:
        self.path = path
        self.classes = read_classes(files[0].with_name(CLASSES_FILE))
        self.num_classes: int | None = len(self.classes) or None
        self._first_label = FIRST_LABEL if first_label is None else first_label
        self._paths = files
        self._files = OpenFiles()
        self._problems: dict[int, str] = {}
        records = array("q")
        ends: list[int] = []
        for file in files:
            found, problem = _scan(file)
            records += found
            if problem and not skip_bad:
                raise UsageError(f"{_where(file, len(found) // 2 - 1, found[-2])}: {problem}")
            if problem:
                self._problems[len(records) // 2 - 1] = problem
            ends.append(len(records) // 2)
        self._records = np.frombuffer(records, dtype=np.int64).reshape(-1, 2)
        self._ends = np.array(ends)

    def __len__(self) -> int:
        return len(self._records)

    def encoded(self, index: int) -> Encoded:
        """Sample `index`. Raises BadSample for a record that is damaged or no image with a label."""
        place = int(np.searchsorted(self._ends, index, side="right"))
        path, (offset, length) = self._paths[place], self._records[index].tolist()
        where = _where(path, index - int(self._ends[place - 1] if place else 0), offset)
        if index in self._problems:
            raise bad_sample(where, self._problems[index], index=index)
        try:
            features = read_example(self._data(path, offset, length=length))
            data, label = _only(features, ENCODED, bytes), _only(features, LABEL, int)
            first = (
                _only(features, FIRST_LABEL_KEY, int) if FIRST_LABEL_KEY in features else self._first_label
            )
            name = _only(features, FILE_NAME, bytes) if FILE_NAME in features else b""
        except (OSError, ValueError) as error:
            raise bad_sample(where, reason(error), index=index) from None
        if label < first:
            raise bad_sample(
                where,
                f"label {label}, where labels count from {first} by ImageNet's convention (if these count from "
                f"{label}: `dlscale data convert --first-label {label}`)",
                index=index,
            )
        return Encoded(
            index=index, data=data, label=label - first, where=where, name=os.fsdecode(os.path.basename(name))
        )

    def close(self) -> None:
        """Closes its files."""
        self._files.close()

    def _data(self, path: Path, offset: int, *, length: int) -> bytes:
        body = self._files.read(path, offset + _HEADER.size, num_bytes=length + 4)
        data, crc = body[:length], body[length:]
        if len(crc) < 4 or struct.unpack("<I", crc)[0] != masked_crc(data):
            raise ValueError("the data do not have the CRC stored with them")
        return data


def _scan(path: Path) -> tuple[array[int], str]:
    """Of each record, where it begins and how long its data are [bytes]; what is wrong with the last one, or ""."""
    records = array("q")  # for millions of records, tuples would take ten times the memory
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Without this, reading ahead would fetch the whole file for its headers.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        num_bytes = os.fstat(descriptor).st_size
        offset = 0
        while offset < num_bytes:
            header = os.pread(descriptor, _HEADER.size, offset)
            problem, length = "", 0
            if len(header) < _HEADER.size:
                problem = f"cut off in its header, the file ends at byte {num_bytes}"
            else:
                length, crc = _HEADER.unpack(header)
                if crc != masked_crc(header[:8]):
                    problem = "its length does not have the CRC stored with it"
                    problem += ", for the file is compressed" if header.startswith(b"\x1f\x8b") else ""
                elif offset + _OVERHEAD_BYTES + length > num_bytes:
                    end = offset + _OVERHEAD_BYTES + length
                    problem = f"cut off, it would end at byte {end} and the file ends at {num_bytes}"
            if problem:
                records.extend((offset, 0))
                return records, f"{problem}; copy or make the file again"
            records.extend((offset, length))
            offset += _OVERHEAD_BYTES + length
    finally:
        os.close(descriptor)
    return records, ""


def _where(path: Path, record: int, offset: int) -> str:
    return f"{path}: record {record} at byte {offset}"


def _only(features: dict[str, Values], name: str, kind: type[T]) -> T:
    values = features.get(name, [])
    if len(values) != 1 or not isinstance(values[0], kind):
        raise ValueError(
            f"needs one value {name!r} of type {kind.__name__}, has {', '.join(features) or 'nothing'}"
        )
    return values[0]
