"""The message in a TFRecord, tensorflow.train.Example: a mapping from names to lists of bytes or of integers.

Read and written by protocol buffers' wire format, because the generated classes come with TensorFlow only.
In it a message is a row of fields, each a key `number << 3 | kind` and a value: kind 0 is a varint, 1 and 5 are 8 and
4 bytes, 2 is a length and so many bytes. The four messages:

    Example       { Features features = 1; }
    Features      { map<string, Feature> feature = 1; }      an entry is { key = 1; value = 2; }
    Feature       { BytesList = 1 | FloatList = 2 | Int64List = 3; }
    BytesList     { repeated bytes value = 1; }
    Int64List     { repeated int64 value = 1 [packed]; }

Sources: https://protobuf.dev/programming-guides/encoding, tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
