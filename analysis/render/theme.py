"""The looks of backends: a backend keeps its colour, marker and line in every figure and on every page.

Readable at column width, in grey, and by colour-blind readers. Colours are those of Okabe & Ito, "Color Universal
Design" (2008), except their yellow, which is too pale for a line on paper: an olive of Tol's "muted" scheme (2021)
replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """The colour, marker (matplotlib's) and line of a curve."""

    color: str
    marker: str
    dashes: tuple[float, ...] = ()  # (on, off, ...) in line widths, empty if solid


_LOOKS = {
    "none": Look("#000000", "o"),
    "ring": Look("#0072B2", "s"),
    "mpi": Look("#D55E00", "^", (5, 1.5)),
    "gloo": Look("#009E73", "D", (3, 1.2, 1, 1.2)),
    "nccl": Look("#E69F00", "v", (1, 1)),
    "horovod": Look("#CC79A7", "P", (7, 2)),
    "tf_collective": Look("#56B4E9", "X", (4, 1, 1, 1, 1, 1)),
    "grpc_ps": Look("#999933", "h", (2, 1)),
    "mpi_ps": Look("#882255", "p", (6, 1, 2, 1)),
    # Of the message-size benchmark.
    "mpich": Look("#D55E00", "^"),
    "openmpi": Look("#E69F00", "v"),
    "intelmpi": Look("#882255", "p"),
    "ring-shared": Look("#56B4E9", "s"),
}


def looks_for(backends: Mapping[str, str]) -> dict[str, Look]:
    """A look for each name of a curve, from name -> backend: its own, or an unused one for other sets of options."""
    spare = [look for backend, look in _LOOKS.items() if backend not in backends.values()]
    looks: dict[str, Look] = {}
    for name, backend in backends.items():
        own = _LOOKS.get(backend)
        if own is None or own in looks.values():
            own = spare.pop(0) if spare else list(_LOOKS.values())[len(looks) % len(_LOOKS)]
        looks[name] = own
    return looks
