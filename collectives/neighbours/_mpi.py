"""Carrier `mpi`: mpi4py, on a communicator of the replica's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dlscale.collectives.neighbours.carried import Parts


class MpiCarrier:
    """The ranks of one replica (`Carrier`). Errors of MPI raise MPI.Exception, a RuntimeError."""

    takes_tensors = False

    def __init__(self, control: MPI.Intracomm, split: int) -> None:
        rank = control.Get_rank()
        self._communicator = control.Split(rank // split, rank)
        self._communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self.index: int = self._communicator.Get_rank()
        self._closed = False

    def exchange(self, sends: Parts, receives: Parts) -> None:
        begun = [self._communicator.Irecv(_as_bytes(array), rank) for rank, array in receives]
        begun += [self._communicator.Isend(_as_bytes(array), rank) for rank, array in sends]
        MPI.Request.Waitall(begun)

    def sum(self, values: NDArray[Any]) -> None:
        self._communicator.Allreduce(MPI.IN_PLACE, values)

    def gather(self, own: NDArray[Any], whole: NDArray[Any], counts: Sequence[int]) -> None:
        row_bytes = whole.nbytes // len(whole)
        sizes = [count * row_bytes for count in counts]
        self._communicator.Allgatherv(_as_bytes(own), [_as_bytes(whole), sizes])

    def settings(self) -> dict[str, str | int | float | bool]:
        """Nothing: how it sends is the MPI's own choice."""
        return {}

    def close(self) -> None:
        """Free the communicator, unless MPI was finalised, which has freed everything."""
        if not self._closed and not MPI.Is_finalized():
            self._communicator.Free()
        self._closed = True


def connect(*, control: MPI.Intracomm, split: int, options: dict[str, Any]) -> MpiCarrier:  # noqa: ARG001
    """The replica of this rank; collective."""
    return MpiCarrier(control, split)


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)
