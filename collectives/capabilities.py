"""What each backend can do: one row each. Everything that asks, asks here."""

from __future__ import annotations

from dlscale.collectives.backend import Capabilities
from dlscale.models.errors import UsageError

NAMES = ("none", "mpi", "gloo", "ring")

TABLE = {
    row.name: row
    for row in (
        Capabilities(
            name="none",
            summary="no exchange of gradients: the control",
            frameworks=("torch", "tensorflow"),
            collective=False,
            exchanges=False,
        ),
        Capabilities(
            name="mpi",
            summary="MPI_Allreduce of the installed MPI: the plain baseline",
            frameworks=("torch", "tensorflow"),
            collective=True,
            delayed=True,
        ),
        Capabilities(
            name="gloo",
            summary="torch.distributed with Gloo under DistributedDataParallel",
            frameworks=("torch",),
            collective=True,
        ),
        Capabilities(
            name="ring",
            summary="our native ring allreduce in C++ over MPI",
            frameworks=("torch", "tensorflow"),
            collective=True,
            delayed=True,
        ),
    )
}


def capabilities(name: str) -> Capabilities:
    """The row of a backend. Raises UsageError for an unknown name."""
    if name not in NAMES:
        raise UsageError(f"no backend {name!r}; choose one of: {', '.join(NAMES)}")
    return TABLE[name]


def with_capability(capability: str) -> tuple[str, ...]:
    """Names of the backends for which that column of the table is true."""
    return tuple(name for name in NAMES if getattr(TABLE[name], capability))
