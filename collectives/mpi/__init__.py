"""Backend `mpi`: MPI_Allreduce of the installed MPI through mpi4py, the plain baseline."""

from __future__ import annotations

from typing import Any

from dlscale.collectives.registry import read_options
from dlscale.collectives.training.collective_backend import CollectiveBackend
from dlscale.collectives.training.communication import Training

OPTION_KINDS = (Training,)


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> CollectiveBackend:  # noqa: ARG001
    """Join the ranks of `control`; collective. The options are those of `Training`."""
    training = read_options(Training, options, backend="mpi")
    from dlscale.collectives.mpi.collective import MpiCollective

    return CollectiveBackend("mpi", lambda: MpiCollective(control), training)
