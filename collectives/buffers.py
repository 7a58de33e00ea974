"""Host buffers of collective operations: what every `Collective` asks of them, how they are cut into messages, and
whether all ranks hold the same bits.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.backend import Collective

DTYPES = frozenset(np.dtype(name) for name in ("float32", "float64", "int32", "int64"))
# Some backends take these too; bfloat16 comes in the guise of uint16, since NumPy has no such type.
EXTENDED_DTYPES = DTYPES | {np.dtype("float16"), np.dtype("uint16")}

OPERATIONS = ("sum", "average", "min", "max")

CACHE_LINE_BYTES = 64
MAX_MESSAGE_BYTES = 2**30  # MPI counts are C ints


def check_buffer(
    buffer: NDArray[Any], *, dtypes: Collection[np.dtype[Any]] = DTYPES, written: bool = True
) -> None:
    """Return if `buffer` is of one of `dtypes` and can be reduced in place; `written`: results go into it.

    Raises TypeError for what is no array or of another dtype (also of another byte order), ValueError if it
    is not C-contiguous, not writable or not aligned.
    """
    if not isinstance(buffer, np.ndarray):
        raise TypeError(f"the buffer is a {type(buffer).__name__}; give a NumPy array")
    if buffer.dtype not in dtypes:
        raise TypeError(f"the buffer's dtype is {buffer.dtype}; give {', '.join(sorted(map(str, dtypes)))}")
    flags = buffer.flags
    if not flags.c_contiguous:
        raise ValueError("the buffer is not C-contiguous; give numpy.ascontiguousarray(...) and copy back")
    if written and not flags.writeable:
        raise ValueError("the buffer is read-only, but the result is written into it; give a copy")
    if not flags.aligned:
        raise ValueError("the buffer is not aligned to its dtype; give a copy")


def check_operation(op: str, buffer: NDArray[Any]) -> None:
    """Return if `op` can be applied to `buffer`; raises ValueError for an unknown operation, TypeError otherwise."""
    if op not in OPERATIONS:
        raise ValueError(f"no operation {op!r}; choose one of: {', '.join(OPERATIONS)}")
    if op == "average" and buffer.dtype.kind == "i":  # uint16 is no integer here: it holds bfloat16
        raise TypeError(f"an average of {buffer.dtype} has no exact result; give floats, or take the sum")


def check_root(root: int, *, size: int) -> None:
    """Return if `root` is a rank of `size`; raises ValueError."""
    if not isinstance(root, Integral) or not 0 <= root < size:
        raise ValueError(f"root is {root!r}; give a rank's number, 0 .. {size - 1}")


def check_length(count: int, dtype: str, *, dtypes: Collection[np.dtype[Any]] = DTYPES) -> np.dtype[Any]:
    """The dtype of a new array of `count` elements.

    Raises ValueError if `count` is no whole number from 0 on, TypeError if `dtype` is none of `dtypes`.
    """
    if not isinstance(count, Integral) or count < 0:
        raise ValueError(f"count is {count!r}; give a whole number, 0 or more")
    for kind in dtypes:
        if str(kind) == str(dtype):
            return kind
    raise TypeError(f"no dtype {dtype!r} here; give {', '.join(sorted(map(str, dtypes)))}")


def aligned_zeros(count: int, dtype: str) -> NDArray[Any]:
    """An array of `count` zeros that begins at a cache line. Raises as `check_length`."""
    kind = check_length(count, dtype)
    raw = np.zeros(count * kind.itemsize + CACHE_LINE_BYTES, dtype=np.uint8)
    begin = -raw.ctypes.data % CACHE_LINE_BYTES
    return raw[begin : begin + count * kind.itemsize].view(kind)


def messages(buffer: NDArray[Any], *, max_bytes: int = MAX_MESSAGE_BYTES) -> Sequence[NDArray[Any]]:
    """The C-contiguous `buffer` itself if it fits, or flat views of at most `max_bytes` each, in order."""
    if buffer.nbytes <= max_bytes:
        return (buffer,)
    flat = buffer.reshape(-1)
    length = max(max_bytes // buffer.itemsize, 1)
    return [flat[begin : begin + length] for begin in range(0, flat.size, length)]


class BuffersDifferError(RuntimeError):
    """Ranks hold different arrays where they ought to hold the same."""


def all_equal(collective: Collective, values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the values are the same on all ranks; collective, of equally many on each."""
    extremes = np.concatenate([values, -values])
    collective.allreduce(extremes, "min")
    equal: NDArray[np.bool_] = extremes[: values.size] == -extremes[values.size :]
    return equal


def check_buffers_match(
    collective: Collective, arrays: Sequence[NDArray[Any]], *, names: Sequence[str] = ()
) -> None:
    """Return if the arrays are equal in number, dtype, shape and every bit on all ranks; collective.

    Digests travel, no arrays. If they differ every rank raises the same BuffersDifferError, which names the first array
    that differs (by its name, or its index) and the ranks on which it is not as on rank 0.
    """
    if names and len(names) != len(arrays):
        raise ValueError(f"{len(arrays)} arrays have {len(names)} names; give one for each, or none")
    if not all_equal(collective, np.array([len(arrays)], np.int64))[0]:
        counts = _of_all_ranks(collective, len(arrays))
        raise BuffersDifferError(f"ranks hold {', '.join(map(str, counts))} arrays; all must hold the same")
    digests = np.array([_digest(array) for array in arrays], dtype=np.int64)
    equal = all_equal(collective, digests)
    if equal.all():
        return
    first = int(np.argmin(equal))
    of_ranks = _of_all_ranks(collective, int(digests[first]))
    ranks = [rank for rank, digest in enumerate(of_ranks) if digest != of_ranks[0]]
    name = names[first] if names else f"array {first}"
    raise BuffersDifferError(
        f"{name} is not on all ranks what it is on rank 0: it differs on rank {', '.join(map(str, ranks))}; "
        f"{int((~equal).sum())} of {len(arrays)} arrays differ"
    )


def _of_all_ranks(collective: Collective, value: int) -> list[int]:
    row = np.zeros(collective.size, dtype=np.int64)
    row[collective.rank] = value
    collective.allreduce(row)
    return [int(entry) for entry in row]


def _digest(array: NDArray[Any]) -> int:
    """63 bits of dtype, shape and contents: a CRC and a sum of words, which few faults leave both as they were."""
    kind = zlib.crc32(f"{array.dtype.str}{array.shape}".encode())
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = data.size // 8 * 8
    total = int(np.add.reduce(data[:whole].view(np.uint64))) + int(data[whole:].sum())
    return (zlib.crc32(data.data, kind) << 31) | ((total ^ (total >> 31)) & 0x7FFFFFFF)
