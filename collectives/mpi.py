"""Backend `mpi`: MPI_Allreduce of the installed MPI through mpi4py, the plain baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlscale.collectives.options import read_options
from dlscale.collectives.over_collective import CollectiveBackend


@dataclass(frozen=True, slots=True)
class Options:
    """There are none."""


def connect(*, control: Any, options: dict[str, Any]) -> CollectiveBackend:
    """Join the ranks of `control`; collective."""
    read_options(Options, options, backend="mpi")
    from dlscale.collectives.mpi_collective import MpiCollective

    return CollectiveBackend("mpi", lambda: MpiCollective(control))
