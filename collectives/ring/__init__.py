"""Backend `ring`: our own ring allreduce, a C++ engine over MPI point-to-point messages.

src/         the engine and its binding, the extension module `_engine`
engine.py    its Python front, a `Collective`
vendor.py    refuses an MPI other than the one that the engine was compiled with
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlscale.collectives.options import read_options
from dlscale.collectives.over_collective import CollectiveBackend


@dataclass(frozen=True, slots=True)
class Options:
    """`segment_bytes`: the largest message; while one is added, others travel."""

    segment_bytes: int = 256 * 1024


def connect(*, control: Any, options: dict[str, Any]) -> CollectiveBackend:
    """Join the ranks of `control`; collective. Raises UsageError if the engine was not built for this MPI."""
    chosen = read_options(Options, options, backend="ring")
    from dlscale.collectives.ring.engine import RingCollective

    return CollectiveBackend("ring", lambda: RingCollective(control, segment_bytes=chosen.segment_bytes))
