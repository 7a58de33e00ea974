"""Whether all ranks hold the same arrays, bit by bit, without sending the arrays.

The start-up broadcast, a gradient that was not averaged, a rank that skipped a step: whatever went wrong, replicas
that ought to be equal are not, and nothing else would say so.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.backend import Collective


class BuffersDifferError(RuntimeError):
    """Ranks hold different arrays where they ought to hold the same."""


def check_buffers_match(
    collective: Collective, arrays: Sequence[NDArray[Any]], *, names: Sequence[str] = ()
) -> None:
    """Return if the arrays are equal in number, dtype, shape and every bit on all ranks; collective.

    Otherwise every rank raises the same BuffersDifferError. It names the first array that differs (by its name, or
    its index) and the ranks on which it is not as on rank 0.
    """
    if names and len(names) != len(arrays):
        raise ValueError(f"{len(arrays)} arrays have {len(names)} names; give one for each, or none")
    counts = _of_all_ranks(collective, len(arrays))
    if len(set(counts)) > 1:
        raise BuffersDifferError(f"ranks hold {', '.join(map(str, counts))} arrays; all must hold the same")
    digests = np.array([_digest(array) for array in arrays], dtype=np.int64)
    extremes = np.concatenate([digests, -digests])
    collective.allreduce(extremes, "min")
    differs = extremes[: len(arrays)] != -extremes[len(arrays) :]
    if not differs.any():
        return
    first = int(np.argmax(differs))
    found = _of_all_ranks(collective, int(digests[first]))
    ranks = [rank for rank, digest in enumerate(found) if digest != found[0]]
    name = names[first] if names else f"array {first}"
    raise BuffersDifferError(
        f"{name} is not on all ranks what it is on rank 0: it differs on rank {', '.join(map(str, ranks))}; "
        f"{int(differs.sum())} of {len(arrays)} arrays differ"
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
