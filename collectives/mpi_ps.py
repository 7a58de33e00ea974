"""Backend `mpi_ps`: parameter servers over MPI (`servers`), for both frameworks. They are the last ranks (`job`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlscale.collectives.backend import Backend
from dlscale.collectives.job import ServerSplit
from dlscale.collectives.option_kinds import read_options
from dlscale.collectives.servers.backend import Servers, ranks_of
from dlscale.collectives.servers.over_mpi import OverMpi
from dlscale.collectives.servers.server import Server


@dataclass(frozen=True, slots=True)
class Options:
    """There are none."""


def connect(
    *,
    control: Any,  # noqa: ARG001
    framework: str,
    options: Mapping[str, Any],
    job: ServerSplit,
    algorithm: Any,
) -> Backend:
    """Join the servers of `job`; collective over all its ranks. `algorithm` are the options of the one to run."""
    read_options(Options, options, backend="mpi_ps")
    ranks = ranks_of(job, algorithm, framework=framework)
    return Servers("mpi_ps", job, ranks, OverMpi(job, ranks), algorithm=algorithm)


def serve(*, job: ServerSplit, framework: str, options: Mapping[str, Any], algorithm: Any) -> None:
    """Serve until all workers have closed; collective with their `connect`."""
    read_options(Options, options, backend="mpi_ps")
    ranks = ranks_of(job, algorithm, framework=framework)
    Server(OverMpi(job, ranks), ranks, rank=job.num_workers + job.index).serve()
