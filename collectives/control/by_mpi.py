"""The control plane over MPI, by mpi4py."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from mpi4py import MPI

from dlscale.collectives.control.mpi_match import require_same_world


class MpiPlane:
    """MPI's world (`ControlPlane`)."""

    @property
    def rank(self) -> int:
        rank: int = MPI.COMM_WORLD.Get_rank()
        return rank

    def meet(self, asked: int) -> Any:
        """A communicator of its own. Raises UsageError where MPI's world is not what the launcher started."""
        everyone = MPI.COMM_WORLD.Dup()
        require_same_world(
            num_ranks=everyone.Get_size(), loaded=MPI.get_vendor()[0], environment=os.environ, asked=asked
        )
        return everyone

    def leave(self) -> None:
        """Finalise MPI, which removes what it has in shared memory."""
        MPI.Finalize()

    def abort(self) -> NoReturn:
        MPI.COMM_WORLD.Abort(1)
        raise AssertionError("MPI_Abort returned")
