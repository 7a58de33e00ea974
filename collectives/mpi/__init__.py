"""Backend `mpi`: MPI_Allreduce of the installed MPI through mpi4py, the plain baseline; gradients also compressed."""

from __future__ import annotations

from typing import Any

from dlscale.collectives.backend import Setup
from dlscale.collectives.compression import Compression
from dlscale.collectives.registry import read_kinds
from dlscale.collectives.training.collective_backend import CollectiveBackend
from dlscale.collectives.training.communication import Training

OPTION_KINDS = (Training, Compression)


def check_setup(options: dict[str, Any], setup: Setup) -> None:
    """Returns if the options fit each other and the framework. Raises UsageError."""
    training, compression = read_kinds(OPTION_KINDS, options, backend="mpi")
    compression.check(training, framework=setup.framework)


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> CollectiveBackend:
    """Join the ranks of `control`; collective. The options are those of `Training` and `Compression`."""
    training, compression = read_kinds(OPTION_KINDS, options, backend="mpi")
    compression.check(training, framework=framework)
    from dlscale.collectives.mpi.collective import MpiCollective

    return CollectiveBackend("mpi", lambda: MpiCollective(control), training, compression)
