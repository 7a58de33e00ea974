"""TFRecord files by ImageNet's convention, read at random.

A file is a sequence of records: length (8 bytes, little-endian), its masked CRC32C (4), the data, their masked
CRC32C (4). Each record is a tensorflow.train.Example, a mapping from names to lists of bytes or of integers, with
`image/encoded` (a JPEG or PNG) and `image/class/label`.
"""

from __future__ import annotations

import os
import struct
from array import array
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.models.images.store import Encoded, OpenFiles, bad_sample, reason

Values = list[bytes] | list[int]

# TensorFlow's example.proto without lists of floats, as a FileDescriptorProto: its generated classes come with
# TensorFlow only, and a compiler of .proto files with grpcio-tools only.
_SCHEMA = """
name: "dlscale/example.proto" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "Int64List" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type {
  name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: ".BytesList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".Int64List" oneof_index: 0 }
}
message_type {
  name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".Features.FeatureEntry" }
  nested_type {
    name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".Feature" }
  }
}
message_type { name: "Example" field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".Features" } }
"""


@cache
def _example_class() -> Any:
    """The class of messages, in a pool of its own: TensorFlow has another one of nearly that name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    pool = descriptor_pool.DescriptorPool()
    file = pool.AddSerializedFile(
        text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto()).SerializeToString()
    )
    return message_factory.GetMessageClass(file.message_types_by_name["Example"])


def read_example(message: bytes) -> dict[str, Values]:
    """The features of bytes and of integers, by name; those of floats are left out.

    Raises ValueError if the message is malformed.
    """
    from google.protobuf.message import DecodeError

    try:
        features = _example_class().FromString(message).features.feature
    except DecodeError as error:
        raise ValueError(f"no tensorflow.train.Example: {error}") from None
    kinds = {name: feature.WhichOneof("kind") for name, feature in features.items()}
    return {name: list(getattr(features[name], kind).value) for name, kind in kinds.items() if kind}


FIRST_LABEL = 1  # of ImageNet's convention
ENCODED, LABEL = "image/encoded", "image/class/label"
T = TypeVar("T", bytes, int)
_HEADER = struct.Struct("<QI")
_OVERHEAD_BYTES = _HEADER.size + 4  # of a record, besides its data


def masked_crc(data: bytes) -> int:
    """CRC32C, rotated and shifted: a CRC of data that hold their own CRC would be weak."""
    import google_crc32c

    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class TFRecordStore:
    """The records of one or many files, as one sequence; the files may be of unequal length.

    On opening, every record's header is read once and its CRC checked; data and their CRC on reading.

    Raises UsageError for a file that is cut off or damaged, unless bad samples are skipped: then the record that it
    happens in cannot be read, and those behind it in the same file are not there.
    """

    format = "TFRecord"

    def __init__(self, path: Path, files: list[Path], *, skip_bad: bool = False) -> None:
        _example_class()  # so that a missing package is an error on opening
        self.path = path
        self.num_classes: int | None = None
        self._paths = files
        self._files = OpenFiles()
        records = array("q")  # for millions of records, tuples would take ten times the memory
        ends: list[int] = []
        for file in files:
            begin = len(records) // 2
            problem = _scan(file, records)
            if problem and not skip_bad:
                raise UsageError(f"{_where(file, len(records) // 2 - begin - 1, records[-2])}: {problem}")
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
        try:
            features = read_example(self._data(path, offset, length=length))
            data, label = _only(features, ENCODED, bytes), _only(features, LABEL, int)
        except (OSError, ValueError) as error:
            raise bad_sample(where, reason(error), index=index) from None
        if label < FIRST_LABEL:
            raise bad_sample(
                where, f"label {label}, where labels count from 1 by ImageNet's convention", index=index
            )
        return Encoded(index=index, data=data, label=label - FIRST_LABEL, where=where)

    def close(self) -> None:
        self._files.close()

    def _data(self, path: Path, offset: int, *, length: int) -> bytes:
        body = self._files.read(path, offset + _HEADER.size, num_bytes=length + 4)
        data, crc = body[:length], body[length:]
        if len(crc) < 4 or struct.unpack("<I", crc)[0] != masked_crc(data):
            raise ValueError("the data do not have the CRC stored with them")
        return data


def _scan(path: Path, records: array[int]) -> str:
    """Add offset and length in bytes of each record's data; what is wrong with the last one, whose length is then 0."""
    with path.open("rb", buffering=0) as file:
        # Without this, reading ahead would fetch the whole file for its headers.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        num_bytes, offset = os.fstat(file.fileno()).st_size, 0
        while offset < num_bytes:
            header = os.pread(file.fileno(), _HEADER.size, offset).ljust(_HEADER.size, b"\0")
            length, crc = _HEADER.unpack(header)
            end = offset + _OVERHEAD_BYTES + length
            problem = ""
            if crc != masked_crc(header[:8]):
                problem = "its length does not have the CRC stored with it: the file is damaged or compressed"
            elif end > num_bytes:
                problem = f"cut off, it would end at byte {end} and the file ends at {num_bytes}"
            records.extend((offset, 0 if problem else length))
            if problem:
                return f"{problem}; copy or make the file again"
            offset = end
    return ""


def _where(path: Path, record: int, offset: int) -> str:
    return f"{path}: record {record} at byte {offset}"


def _only(features: dict[str, Values], name: str, kind: type[T]) -> T:
    """The one value of a feature. Raises ValueError."""
    values = features.get(name, [])
    if len(values) == 1 and isinstance(values[0], kind):
        return values[0]
    found = ", ".join(features) or "nothing"
    raise ValueError(f"needs one value {name!r} of type {kind.__name__}; the record has {found}")
