"""Objects as bytes between ranks: plain types, tuples and arrays, in MessagePack. Reading them runs nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

# Codes of what MessagePack has no type for.
_TUPLE, _SET, _ARRAY = 1, 2, 3


def packed(value: Any) -> bytes:
    """`value` as bytes: None, bool, int, float, str, bytes, arrays, and tuples, lists, sets and dicts of these.

    Raises TypeError for any other type.
    """
    return msgspec.msgpack.encode(_plain(value))


def unpacked(content: bytes) -> Any:
    """What `packed` made these of."""
    return msgspec.msgpack.decode(content, ext_hook=_special)


def _plain(value: Any) -> Any:
    match value:
        case np.ndarray() | np.generic():
            whole = np.asarray(value, order="C")
            return _marked(_ARRAY, [whole.dtype.str, list(whole.shape), whole.tobytes()])
        case tuple():
            return _marked(_TUPLE, [_plain(item) for item in value])
        case set() | frozenset():
            return _marked(_SET, [_plain(item) for item in value])
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case None | bool() | int() | float() | str() | bytes():
            return value
    raise TypeError(f"a {type(value).__name__} does not travel between ranks")


def _marked(code: int, content: list[Any]) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(content))


def _special(code: int, content: memoryview) -> Any:
    items = msgspec.msgpack.decode(content, ext_hook=_special)
    if code == _ARRAY:
        kind, shape, raw = items
        array = np.frombuffer(raw, np.dtype(kind)).reshape(shape).copy()
        return array if shape else array[()]
    return {_TUPLE: tuple, _SET: set}[code](items)
