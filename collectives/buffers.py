"""What every `Collective` asks of a buffer, and buffers cut into messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DTYPES = tuple(np.dtype(name) for name in ("float32", "float64", "int32", "int64"))
_DTYPES = frozenset(DTYPES)  # asked on every call: hashing is quicker than comparing

MAX_MESSAGE_BYTES = 2**30  # MPI counts are C ints


def check_buffer(buffer: NDArray[Any]) -> None:
    """Return if `buffer` can be reduced in place.

    Raises TypeError for what is no array or of another dtype (also of another byte order), ValueError if it
    is not C-contiguous, not writable or not aligned.
    """
    if not isinstance(buffer, np.ndarray):
        raise TypeError(f"the buffer is a {type(buffer).__name__}; give a NumPy array")
    if buffer.dtype not in _DTYPES:
        raise TypeError(f"the buffer's dtype is {buffer.dtype}; give {', '.join(map(str, DTYPES))}")
    flags = buffer.flags
    if not flags.c_contiguous:
        raise ValueError("the buffer is not C-contiguous; give numpy.ascontiguousarray(...) and copy back")
    if not flags.writeable:
        raise ValueError("the buffer is read-only, but the result is written into it; give a copy")
    if not flags.aligned:
        raise ValueError("the buffer is not aligned to its dtype; give a copy")


def check_root(root: int, *, size: int) -> None:
    """Return if `root` is a rank of `size`; raises ValueError otherwise."""
    if not 0 <= root < size:
        raise ValueError(f"root is {root}; give 0 .. {size - 1}")


def messages(buffer: NDArray[Any], *, max_bytes: int = MAX_MESSAGE_BYTES) -> Sequence[NDArray[Any]]:
    """The C-contiguous `buffer` itself if it fits, or flat views of at most `max_bytes` each, in order."""
    if buffer.nbytes <= max_bytes:
        return (buffer,)
    flat = buffer.reshape(-1)
    length = max(max_bytes // buffer.itemsize, 1)
    return [flat[begin : begin + length] for begin in range(0, flat.size, length)]
