"""One MPI per process: the one the extension was compiled with must be the one mpi4py loaded."""

from __future__ import annotations

from dlscale.models.errors import UsageError

REINSTALL = "pip install --no-deps --force-reinstall ."

_MPICH_ABI = {"MPICH", "Cray MPICH", "Intel MPI", "MVAPICH", "MVAPICH2"}  # interchangeable by agreement


def require_same_mpi(*, compiled: str, loaded: str) -> None:
    """Return if a program compiled with one MPI can run over the other; both are mpi4py's vendor names.

    Raises UsageError otherwise: two MPIs in one process end in an abort without a word of the reason.
    """
    if compiled == loaded or {compiled, loaded} <= _MPICH_ABI:
        return
    raise UsageError(
        f"backend ring was compiled with {compiled}, but mpi4py loaded {loaded}; "
        f"reinstall dlscale with the mpicxx of {loaded} in this environment or first on PATH: {REINSTALL}"
    )


def require_same_library(*, called: str, loaded: str) -> None:
    """Return if the extension's MPI library says the same of itself as mpi4py's; UsageError otherwise."""
    if called != loaded:
        raise UsageError(
            f"backend ring calls {_first_line(called)}, but mpi4py loaded {_first_line(loaded)}; "
            f"reinstall dlscale in this environment: {REINSTALL}"
        )


def _first_line(version: str) -> str:
    return " ".join(version.split("\n", 1)[0].split())
