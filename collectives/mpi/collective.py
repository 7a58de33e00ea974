"""A `Collective` over the MPI that mpi4py loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dlscale.collectives.buffers import aligned_zeros, check_buffer, check_operation, check_root, messages

_OPERATIONS = {"sum": MPI.SUM, "average": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX}


class MpiCollective:
    """MPI_Allreduce, MPI_Bcast and MPI_Barrier on a communicator of their own (`Collective`).

    Errors of MPI raise MPI.Exception, a RuntimeError.
    """

    def __init__(self, control: MPI.Intracomm) -> None:
        communicator = control.Dup()
        communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self._communicator: MPI.Intracomm | None = communicator

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """Sum, average, min or max over ranks, in place. MPI has no average: it is the sum, divided afterwards."""
        communicator = self._open()
        check_buffer(buffer)
        check_operation(op, buffer)
        for message in messages(buffer):
            communicator.Allreduce(MPI.IN_PLACE, message, op=_OPERATIONS[op])
        if op == "average" and self.size > 1:
            np.divide(buffer, self.size, out=buffer)

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        """Ordinary memory: MPI knows no better."""
        self._open()
        return aligned_zeros(count, dtype)

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        """Copy of root's buffer, in place."""
        communicator = self._open()
        check_buffer(buffer)
        check_root(root, size=self.size)
        for message in messages(buffer):
            communicator.Bcast(message, root=root)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._open().Barrier()

    def settings(self) -> dict[str, str | int | float | bool]:
        """Nothing: the algorithm is the MPI's own choice."""
        return {}

    def close(self) -> None:
        """Free the communicator, unless MPI was finalised, which has freed everything."""
        if self._communicator is not None and not MPI.Is_finalized():
            self._communicator.Free()
        self._communicator = None

    def _open(self) -> MPI.Intracomm:
        if self._communicator is None:
            raise RuntimeError("this mpi communicator is closed")
        return self._communicator
