"""A whole backend: every rank gathers all buffers with mpi4py and reduces them itself.

Copied to collectives/toy.py, it is backend `toy` (docs/adding.md). As a script it checks its allreduce:

mpiexec -n 2 .venv/bin/python examples/mpi4py_backend.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.buffers import aligned_zeros, check_buffer, check_operation, check_root
from dlscale.collectives.option_kinds import read_options
from dlscale.collectives.training.collective_backend import CollectiveBackend
from dlscale.collectives.training.communication import Training

OPTION_KINDS = (Training,)  # teams, pipelined ...; add a dataclass of your own options
REDUCE = {"sum": np.sum, "average": np.mean, "min": np.min, "max": np.max}


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> CollectiveBackend:  # noqa: ARG001
    """Join the ranks of `control`; collective."""
    training = read_options(Training, options, backend="toy")
    return CollectiveBackend("toy", lambda: ToyCollective(control), training)


class ToyCollective:
    """Allgather, then a reduction on every rank (`Collective`)."""

    def __init__(self, control: Any) -> None:
        self._communicator = control.Dup()
        self.rank, self.size = control.Get_rank(), control.Get_size()

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """Sum, average, min or max over ranks, in place."""
        communicator = self._open()
        check_buffer(buffer)
        check_operation(op, buffer)
        everyone = np.empty((self.size, buffer.size), buffer.dtype)
        communicator.Allgather(buffer, everyone)
        reduce = REDUCE[op]
        buffer[...] = reduce(everyone, axis=0).reshape(buffer.shape)

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        """Ordinary memory."""
        self._open()
        return aligned_zeros(count, dtype)

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        """Copy root's buffer, in place."""
        communicator = self._open()
        check_buffer(buffer)
        check_root(root, size=self.size)
        communicator.Bcast(buffer, root=root)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._open().Barrier()

    def settings(self) -> dict[str, str | int | float | bool]:
        """The algorithm, for the record."""
        return {"algorithm": "allgather"}

    def close(self) -> None:
        """Free the communicator."""
        if self._communicator is not None:
            self._communicator.Free()
        self._communicator = None

    def _open(self) -> Any:
        if self._communicator is None:
            raise RuntimeError("this toy communicator is closed")
        return self._communicator


def main() -> None:
    """Average what differs by rank and index, and compare with what must come out."""
    from mpi4py import MPI

    control = MPI.COMM_WORLD
    communicator = connect(control=control, framework="torch", options={}).collective()
    index = np.arange(1000, dtype=np.float32)
    buffer = index * communicator.size + communicator.rank
    communicator.allreduce(buffer, "average")
    communicator.close()
    right = np.array_equal(buffer, index * communicator.size + (communicator.size - 1) / 2)
    if not control.allreduce(right, MPI.LAND):
        raise SystemExit("the average is wrong")
    if communicator.rank == 0:
        print(f"{communicator.size} ranks have the same average")


if __name__ == "__main__":
    main()
