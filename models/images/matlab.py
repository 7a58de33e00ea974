"""Reads an array of real numbers from a MATLAB file of level 5, compressed or not.

SciPy's reader ends the process by a signal on some damaged files; this one reads only what Flowers-102 has, and checks
every length before it is used. A file is a header of 128 bytes and elements; an element is its type and number of
bytes (4 each, both in the first 4 if there are at most 4 bytes of data), then the data, filled up to 8 bytes.

Source: MathWorks, MAT-File Format, chapter 1, "Level 5 MAT-File Format".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.base.files import read_regular

_HEADER_BYTES = 128
_MATRIX, _COMPRESSED = 14, 15
# Type of an element -> its numbers.
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = range(6, 16)  # double to uint64: neither cells, structures, objects, text nor sparse
_COMPLEX = 0x0800
LARGEST_BYTES = 64 << 20  # of a file, and of an array once it is unpacked


def read_array(path: Path, name: str) -> NDArray[Any]:
    """The variable `name` as one row of numbers.

    Raises OSError if the file cannot be read, KeyError if it has no such variable, ValueError if it is damaged, of
    another level, or the variable is no array of real numbers.
    """
    content = read_regular(path, limit=LARGEST_BYTES, links=True)
    order = {b"IM": "<", b"MI": ">"}.get(content[_HEADER_BYTES - 2 : _HEADER_BYTES])
    if order is None:
        raise ValueError("no MATLAB file of level 5")
    for kind, data in _elements(content[_HEADER_BYTES:], order):
        if kind == _COMPRESSED:
            kind, data = next(_elements(_unpacked(data), order), (0, b""))
        if kind == _MATRIX and (values := _named(data, name, order)) is not None:
            return values
    raise KeyError(name)


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """(type, data) of each element. Raises ValueError if one is longer than `data`."""
    place = 0
    while place < len(data):
        if place + 8 > len(data):
            raise ValueError("cut off")
        kind, num_bytes = struct.unpack_from(f"{order}II", data, place)
        small = kind >> 16  # its number of bytes, which are inside the first 8
        begin, limit = (place + 4, place + 8) if small else (place + 8, len(data))
        end = begin + (small or num_bytes)
        if end > limit:
            raise ValueError("cut off, or an element is longer than it can be")
        yield kind & 0xFFFF, data[begin:end]
        # What is compressed is not filled up.
        place = end if kind == _COMPRESSED else place + -(-(end - place) // 8) * 8


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(data, LARGEST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacker.eof:
        raise ValueError(f"cut off, or more than {LARGEST_BYTES} bytes")
    return content


def _named(data: bytes, name: str, order: str) -> NDArray[Any] | None:
    """The numbers of a matrix of that name; None if it has another one."""
    parts = list(islice(_elements(data, order), 4))
    if len(parts) < 4:
        return None
    (_, flags), (_, dimensions), (_, own_name), (kind, values) = parts
    if own_name != name.encode():
        return None
    (word,) = struct.unpack_from(f"{order}I", flags.ljust(8, b"\0"))
    if word & 0xFF not in _CLASSES or word & _COMPLEX or kind not in _NUMBERS:
        raise ValueError(f"{name!r} is no array of real numbers")
    numbers = np.dtype(order + _NUMBERS[kind])
    if len(values) % numbers.itemsize:
        raise ValueError(f"{name!r} ends inside a number")
    sizes = np.frombuffer(dimensions[: len(dimensions) // 4 * 4], f"{order}i4")
    row = np.frombuffer(values, numbers)
    if int(np.prod(sizes.astype(object))) != len(row):
        raise ValueError(f"{name!r} has {len(row)} numbers and the shape {tuple(sizes.tolist())}")
    return row
