"""Backend `mpi`: MPI_Allreduce of the installed MPI through mpi4py, the plain baseline; gradients also compressed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.backend import Setup
from dlscale.collectives.buffers import aligned_zeros, check_buffer, check_operation, check_root, messages
from dlscale.collectives.compression.halves import from_halves, to_halves
from dlscale.collectives.training.collective_backend import (
    TRAINING_KINDS,
    CollectiveBackend,
    check_operations,
    read_training,
)

OPTION_KINDS = TRAINING_KINDS


def check(framework: str) -> None:
    """Returns if gradients of the framework can be exchanged here. Raises UsageError."""
    check_operations(framework)


def check_setup(options: dict[str, Any], setup: Setup) -> None:
    """Returns if the options fit each other and the framework. Raises UsageError."""
    read_training(options, setup.framework, backend="mpi")


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> CollectiveBackend:
    """Join the ranks of `control`; collective. The options are those of `Training` and `Compression`."""
    training, compression = read_training(options, framework, backend="mpi")
    return CollectiveBackend("mpi", lambda: MpiCollective(control), training, compression)


class MpiCollective:
    """MPI_Allreduce, MPI_Bcast and MPI_Barrier on a duplicate of a communicator (`Collective`).

    Errors of MPI raise MPI.Exception, a RuntimeError.
    """

    def __init__(self, control: Any) -> None:
        from mpi4py import MPI  # initialises MPI: not where a launch is only planned

        self._mpi = MPI
        self._operations = {"sum": MPI.SUM, "average": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX}
        communicator = control.Dup()
        communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self._communicator: Any = communicator
        self._scratch = np.empty(0, np.uint8)  # kept: new memory costs more than a copy to it

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """Sum, average, min or max over ranks, in place. MPI has no average: it is the sum, divided afterwards."""
        communicator = self._open()
        check_buffer(buffer)
        check_operation(op, buffer)
        for message in messages(buffer):
            communicator.Allreduce(self._mpi.IN_PLACE, message, op=self._operations[op])
        if op == "average" and self.size > 1:
            np.divide(buffer, self.size, out=buffer)

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        """Ordinary memory: MPI knows no better."""
        self._open()
        return aligned_zeros(count, dtype)

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        communicator = self._open()
        check_buffer(buffer)
        check_root(root, size=self.size)
        for message in messages(buffer):
            communicator.Bcast(message, root=root)

    def reduce_scatter(self, buffer: NDArray[Any], output: NDArray[Any], op: str = "sum") -> None:
        communicator = self._open()
        check_buffer(buffer, written=False)
        check_buffer(output)
        check_operation(op, output)
        part = output.reshape(-1)
        if is_inside := np.may_share_memory(
            buffer, output
        ):  # MPI takes no part of what it sends to receive in
            if self._scratch.nbytes < output.nbytes:
                self._scratch = np.empty(output.nbytes, np.uint8)
            part = self._scratch[: output.nbytes].view(output.dtype)
        communicator.Reduce_scatter_block(buffer, part, op=self._operations[op])
        if op == "average" and self.size > 1:
            np.divide(part, self.size, out=part)
        if is_inside:
            output[...] = part.reshape(output.shape)

    def allgather(self, piece: NDArray[Any], output: NDArray[Any]) -> None:
        communicator = self._open()
        check_buffer(piece, written=False)
        check_buffer(output)
        own = self._mpi.IN_PLACE if np.may_share_memory(piece, output) else piece
        communicator.Allgather(own, output)

    def barrier(self) -> None:
        self._open().Barrier()

    def allgather_bytes(self, message: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """The messages of all ranks, in order of rank, of whatever lengths (`compression.compressors.Carrier`)."""
        communicator = self._open()
        lengths = communicator.allgather(message.size)
        ends = np.cumsum(lengths)
        everyone = np.empty(ends[-1], np.uint8)
        communicator.Allgatherv(message, [everyone, lengths])
        return np.split(everyone, ends[:-1])

    def average_halves(self, values: NDArray[Any]) -> None:
        """The mean of float16, or of uint16 that holds bfloat16: summed in float32 by order of rank, rounded once.

        Each rank owns a chunk, gets it from all, and gives its mean to all.
        """
        communicator = self._open()
        bounds = [values.size * rank // self.size for rank in range(self.size + 1)]
        counts = [end - begin for begin, end in pairwise(bounds)]
        own = counts[self.rank]
        bits = values.view(np.uint16)
        offers = np.empty(own * self.size, np.uint16)
        communicator.Alltoallv([bits, counts], [offers, [own] * self.size])
        total = np.zeros(own, np.float32)
        for offer in offers.view(values.dtype).reshape(self.size, own):
            total += from_halves(offer)
        total /= self.size
        mean = to_halves(total, values.dtype)
        communicator.Allgatherv(mean.view(np.uint16), [bits, counts])

    def settings(self) -> dict[str, str | int | float | bool]:
        """Nothing: the algorithm is the MPI's own choice."""
        return {}

    def close(self) -> None:
        """Free the communicator, unless MPI was finalised, which has freed everything."""
        if self._communicator is not None and not self._mpi.Is_finalized():
            self._communicator.Free()
        self._communicator = None

    def _open(self) -> Any:
        if self._communicator is None:
            raise RuntimeError("this mpi communicator is closed")
        return self._communicator
