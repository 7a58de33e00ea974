"""One MPI per process: that of the extension, of mpi4py and of the launcher must be the same."""

from __future__ import annotations

from collections.abc import Mapping

from dlscale.base.errors import UsageError

REINSTALL = "pip install --no-deps --force-reinstall ."

_MPICH_ABI = {"MPICH", "Cray MPICH", "Intel MPI", "MVAPICH", "MVAPICH2"}  # interchangeable by agreement

_LAUNCHERS_SAY = (
    "PMI_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
)  # how many processes they started


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


def require_same_world(*, num_ranks: int, loaded: str, environment: Mapping[str, str]) -> None:
    """Return if MPI's world of `num_ranks` is what the launcher started; `loaded` is mpi4py's vendor name.

    Raises UsageError otherwise: under another MPI's launcher every process is alone in a world of its own, and
    each would train for itself without a word.
    """
    if num_ranks > 1:
        return
    own = "OMPI_COMM_WORLD_SIZE" if loaded == "Open MPI" else "PMI_SIZE"
    # What was inherited from a launcher further out counts only where the own launcher says nothing.
    names = [own] if own in environment else [name for name in _LAUNCHERS_SAY if name in environment]
    for name in names:
        if environment[name].isdecimal() and int(environment[name]) > 1:
            raise UsageError(
                f"the launcher started {environment[name]} processes ({name}), but in MPI each of them is alone: "
                f"it belongs to another MPI than {loaded}, which mpi4py loaded; start them with the mpiexec of "
                f"{loaded}, or with a plug-in for it (srun --mpi=list)"
            )


def _first_line(version: str) -> str:
    return " ".join(version.split("\n", 1)[0].split())
