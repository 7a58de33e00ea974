"""One MPI per process: that of the extension, of mpi4py and of the launcher must be the same."""

from __future__ import annotations

from collections.abc import Mapping

from dlscale.base.errors import UsageError
from dlscale.base.launchers import BY_TORCHRUN, LAUNCHERS

REINSTALL = "pip install --no-deps --force-reinstall ."  # in a checkout

_MPICH_ABI = {"MPICH", "Cray MPICH", "Intel MPI", "MVAPICH", "MVAPICH2"}  # interchangeable by agreement

# How many processes a launcher started, as it tells them.
_OWN = {"Open MPI": "OMPI_COMM_WORLD_SIZE"}  # of the MPI's own mpiexec; else PMI_SIZE
_LAUNCHERS_SAY = tuple(name for launcher in LAUNCHERS.values() for name in launcher.sizes)


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


def require_same_world(
    *, num_ranks: int, loaded: str, environment: Mapping[str, str], asked: int | None = None
) -> None:
    """Return if MPI's world of `num_ranks` is what the launcher started; `loaded` is mpi4py's vendor name.

    `asked` is the number of ranks that the program was started for, if it knows. Raises UsageError otherwise: under
    another MPI's launcher, or torchrun, every process is alone in a world of its own and would train for itself.
    """
    name, started = _launcher_says(num_ranks, loaded=loaded, environment=environment)
    if asked is not None and num_ranks != asked:
        says = f" (the launcher says {started}: {name})" if name else ""
        raise UsageError(
            f"asked for {asked} ranks, but MPI sees {num_ranks}{says}: mpiexec and mpi4py belong to different MPIs; "
            "use the mpiexec of the same environment"
        )
    if started == num_ranks:
        return
    alone = "each of them is alone" if num_ranks == 1 else f"there are {num_ranks}"
    if BY_TORCHRUN in environment:
        raise UsageError(
            f"torchrun started {started} processes ({name}), but in MPI {alone}: it does not start MPI's ranks; start "
            f"them with the mpiexec of {loaded}: mpiexec -n {started} python ..."
        )
    raise UsageError(
        f"the launcher started {started} processes ({name}), but in MPI {alone}: "
        f"it belongs to another MPI than {loaded}, which mpi4py loaded; start them with the mpiexec of "
        f"{loaded}, or with a plug-in for it (srun --mpi=list)"
    )


def _launcher_says(num_ranks: int, *, loaded: str, environment: Mapping[str, str]) -> tuple[str, int]:
    """The variable that says how many processes were started, and that number; no name where none contradicts MPI."""
    own = _OWN.get(loaded, "PMI_SIZE")
    if BY_TORCHRUN in environment:  # the innermost launcher, whatever started it
        names = LAUNCHERS["torchrun"].sizes
    elif own in environment:
        names = (own,)
    else:
        # What was inherited from a launcher further out counts only where the own launcher says nothing, and a process
        # is alone: parts of one job may have launchers of their own.
        names = _LAUNCHERS_SAY if num_ranks == 1 else ()
    for name in names:
        text = environment.get(name, "")
        if text.isdecimal() and int(text) != num_ranks and int(text) > 0:
            return name, int(text)
    return "", num_ranks


def _first_line(version: str) -> str:
    return " ".join(version.split("\n", 1)[0].split())
