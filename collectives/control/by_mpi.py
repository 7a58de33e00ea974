"""The control plane over MPI, and one MPI per process: that of the ring's engine, of mpi4py and of the launcher."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NoReturn

from dlscale.base.errors import UsageError
from dlscale.base.launchers import BY_TORCHRUN, LAUNCHERS

REINSTALL = "pip install --no-deps --force-reinstall ."  # in a checkout

_MPICH_ABI = {"MPICH", "Cray MPICH", "Intel MPI", "MVAPICH", "MVAPICH2"}  # interchangeable by agreement

# How many processes a launcher started, as it tells them.
_OWN = {"Open MPI": "OMPI_COMM_WORLD_SIZE"}  # of the MPI's own mpiexec; else PMI_SIZE
_LAUNCHERS_SAY = tuple(name for launcher in LAUNCHERS.values() for name in launcher.sizes)


class MpiPlane:
    """MPI's world (`ControlPlane`)."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self.rank: int = MPI.COMM_WORLD.Get_rank()

    def meet(self, asked: int) -> Any:
        """A duplicate of the world. Raises UsageError where MPI's world is not what the launcher started."""
        everyone = self._mpi.COMM_WORLD.Dup()
        vendor = self._mpi.get_vendor()[0]
        require_same_world(num_ranks=everyone.Get_size(), loaded=vendor, environment=os.environ, asked=asked)
        return everyone

    def leave(self) -> None:
        """Finalise MPI, which removes what it has in shared memory."""
        self._mpi.Finalize()

    def abort(self) -> NoReturn:
        self._mpi.COMM_WORLD.Abort(1)
        raise AssertionError("MPI_Abort returned")


def require_same_mpi(*, compiled: str, called: str, loaded: str, library: str) -> None:
    """Return if an extension that was compiled with one MPI and calls a library can run over what mpi4py loaded.

    `compiled` and `loaded` are mpi4py's vendor names, `called` and `library` what the libraries say of themselves.
    Raises UsageError otherwise: two MPIs in one process end in an abort without a word of the reason.
    """
    if compiled != loaded and not {compiled, loaded} <= _MPICH_ABI:
        raise UsageError(
            f"backend ring was compiled with {compiled}, but mpi4py loaded {loaded}; "
            f"reinstall dlscale with the mpicxx of {loaded} in this environment or first on PATH: {REINSTALL}"
        )
    if called != library:
        first, second = (" ".join(version.split("\n", 1)[0].split()) for version in (called, library))
        raise UsageError(
            f"backend ring calls {first}, but mpi4py loaded {second}; "
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
    starter, remedy = (
        "the launcher",
        f"it belongs to another MPI than {loaded}, which mpi4py loaded; start them with",
    )
    if BY_TORCHRUN in environment:
        starter, remedy = "torchrun", "it does not start MPI's ranks; start them with"
    raise UsageError(
        f"{starter} started {started} processes ({name}), but in MPI {alone}: {remedy} the mpiexec of {loaded}: "
        f"mpiexec -n {started} python ..., or with a plug-in for it (srun --mpi=list)"
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
        if text.isdecimal() and int(text) not in (0, num_ranks):
            return name, int(text)
    return "", num_ranks
