"""The compressors' inner loops in C++ (src/kernels.cpp), or in NumPy where they were not built: the same bits.

Each function is one pass over memory there and several passes over blocks in the cache here. Which of the two ran is
in the settings of a training.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.compression.compressor import Floats, accumulate

SIGN = np.uint32(1 << 31)  # of a word whose other bits are a place
SLACK = 16  # elements that may be written beyond the last place
_MODULE = "dlscale.collectives.compression._kernels"  # found as a module, but loaded as plain C


def kind() -> str:
    """`native`, or `numpy` where the installation found no C++ compiler."""
    return "native" if _library() else "numpy"


def move(bucket: Floats, residual: Floats, limit: np.float32) -> NDArray[np.uint32]:
    """Add `bucket` to `residual`, let it be zeros, and give the places where the sum is above `limit` in magnitude.

    In order. `limit` is 0 or more. What is no number is above all of them.
    """
    if library := _library():
        places = np.empty(bucket.size + SLACK, np.uint32)  # memory that is not written to costs nothing
        found = library.dlscale_move(*map(_address, (bucket, residual)), bucket.size, limit, _address(places))
        return places[:found].copy()
    parts = []
    for part in accumulate(bucket, residual):
        above = np.flatnonzero(~(np.abs(residual[part]) <= limit))
        parts.append((above + part.start).astype(np.uint32))
    return np.concatenate(parts) if parts else np.empty(0, np.uint32)


def take_signs(residual: Floats, places: NDArray[np.uint32], tau: np.float32) -> bool:
    """Take `tau` towards 0 from the residual at `places`, and set their highest bit where it was below 0.

    Returns whether all of it was finite.
    """
    if library := _library():
        return bool(library.dlscale_take_signs(_address(residual), places.size, tau, _address(places)))
    found = residual[places]
    residual[places] = found - np.copysign(tau, found)
    places |= np.where(np.signbit(found), SIGN, np.uint32(0))
    return bool(np.isfinite(found).all())


def add_signs(words: NDArray[np.uint32], step: np.float32, total: Floats) -> None:
    """Add `step` at the place of each of `words`, with the sign in its highest bit."""
    if library := _library():
        library.dlscale_add_signs(_address(words), words.size, step, _address(total))
    else:
        total[words & ~SIGN] += np.where(words & SIGN, -step, step)


def round_float16(bucket: Floats, residual: Floats, largest: float) -> NDArray[np.float16]:
    """float16 of `residual` + `bucket`, none beyond `largest`; `residual` becomes what is left.

    What is not finite is no number, for it must be seen.
    """
    halves = np.empty(bucket.size, np.float16)
    done = 0
    if library := _library():
        pointers = map(_address, (bucket, residual))
        done = library.dlscale_round_float16(*pointers, bucket.size, largest, _address(halves))
    for part in accumulate(bucket[done:], residual[done:]):
        values = residual[done:][part]
        limited = values
        if not np.max(np.abs(values), initial=0) <= largest:
            limited = np.where(np.isfinite(values), np.clip(values, -largest, largest), np.float32(np.nan))
        halves[done:][part] = limited
        values -= halves[done:][part]
    return halves


def widen_float16(halves: NDArray[np.float16], values: Floats) -> None:
    """Fill `values` with the same numbers as float32."""
    library = _library()
    done = library.dlscale_widen_float16(_address(halves), halves.size, _address(values)) if library else 0
    values[done:] = halves[done:]


def round_bfloat16(bucket: Floats, residual: Floats) -> NDArray[np.uint16]:
    """bfloat16 of `residual` + `bucket`, nearest, ties to even; `residual` becomes what rounding takes away."""
    halves = np.empty(bucket.size, np.uint16)
    if library := _library():
        library.dlscale_round_bfloat16(*map(_address, (bucket, residual)), bucket.size, _address(halves))
        return halves
    for part in accumulate(bucket, residual):
        halves[part] = to_bfloat16(residual[part])
        residual[part] -= from_bfloat16(halves[part])
    return halves


def widen_bfloat16(halves: NDArray[np.uint16], values: Floats) -> None:
    """Fill `values` with the same numbers as float32."""
    if library := _library():
        library.dlscale_widen_bfloat16(_address(halves), halves.size, _address(values))
    else:
        values[:] = from_bfloat16(halves)


def to_bfloat16(values: Floats) -> NDArray[np.uint16]:
    """The upper halves of the nearest bfloat16 numbers, ties to even; any NaN becomes the same one."""
    bits = values.view(np.uint32)
    rounded = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)
    not_a_number = np.isnan(values)
    if not_a_number.any():
        rounded[not_a_number] = 0x7FC0
    return rounded


def from_bfloat16(halves: NDArray[np.uint16]) -> Floats:
    """The same numbers as float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


@cache
def _library() -> Any:
    """The shared object; None where it was not built."""
    spec = importlib.util.find_spec(_MODULE)
    if spec is None or spec.origin is None:
        return None
    library = ctypes.CDLL(spec.origin)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float
    for name, result, *arguments in (
        ("move", size, pointer, pointer, size, number, pointer),
        ("take_signs", ctypes.c_int, pointer, size, number, pointer),
        ("add_signs", None, pointer, size, number, pointer),
        ("round_bfloat16", None, pointer, pointer, size, pointer),
        ("widen_bfloat16", None, pointer, size, pointer),
        ("round_float16", size, pointer, pointer, size, number, pointer),
        ("widen_float16", size, pointer, size, pointer),
    ):
        function = getattr(library, f"dlscale_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def _address(array: NDArray[Any]) -> int:
    """That of a C-contiguous array."""
    if not array.flags.c_contiguous:
        raise ValueError("the array is not C-contiguous")
    return array.ctypes.data
