"""The ring in Python: `Ring`, the collective operations of one communicator over the C++ engine."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.buffers import (
    EXTENDED_DTYPES,
    check_buffer,
    check_length,
    check_operation,
    check_root,
)
from dlscale.collectives.control.by_mpi import REINSTALL, require_same_mpi, require_same_world
from dlscale.collectives.ring.settings import Settings

try:
    # As a module: of a package, `from` says ImportError for a missing one, too.
    import dlscale.collectives.ring._engine as _engine
except ModuleNotFoundError as error:
    raise UsageError(
        "backend ring was not built: the installation found no C++ compiler or no MPI (mpicxx), or was told "
        f"not to; {REINSTALL} --config-settings=cmake.define.DLSCALE_WITH_MPI=ON builds it or says what is missing"
    ) from error
except ImportError as error:
    raise UsageError(
        f"backend ring cannot be loaded: {error}; reinstall dlscale in this environment: {REINSTALL}"
    ) from error

require_same_mpi(
    compiled=_engine.MPI_VENDOR,
    called=_engine.library_version(),
    loaded=MPI.get_vendor()[0],
    library=MPI.Get_library_version(),
)


# What the engine raises for unfit arguments. The checks of `buffers`, which have better words, come after it: they take
# longer than a small sum.
REFUSALS = (BufferError, TypeError, ValueError)

WORD_BYTES = 4
MOST_BYTES = 2**60  # far more than there is, and still a number for C++


class Ring:
    """Collective operations over the ranks of `control`, on a communicator of their own (`Collective`).

    Every method but the properties is collective and blocking: all ranks call the same ones in the same
    order, with buffers equal in dtype and length. Buffers are C-contiguous NumPy arrays of float32, float64,
    float16, int32 or int64, or uint16 arrays that hold bfloat16 (`bfloat16=True`). Threads may share a ring:
    their calls take turns.

    A rank that died, was stopped or exceeds the timeout raises RuntimeError on the others, which names it; the
    ring can do nothing more then.
    """

    def __init__(self, control: MPI.Intracomm, settings: Settings | None = None) -> None:
        if control == MPI.COMM_NULL:
            raise RuntimeError("the communicator is MPI_COMM_NULL")
        if not isinstance(control, MPI.Intracomm):
            raise UsageError(
                f"a ring is over the ranks of an mpi4py communicator, and was given a {type(control).__name__}; give "
                "MPI.COMM_WORLD, or a communicator that was split from it"
            )
        require_same_world(
            num_ranks=MPI.COMM_WORLD.Get_size(), loaded=MPI.get_vendor()[0], environment=os.environ
        )
        settings = settings or Settings()
        try:
            self._engine = _engine.Engine(
                comm=control.py2f(),
                timeout_seconds=settings.timeout_seconds,
                switch_points=(
                    settings.one_shot_bytes,
                    settings.recursive_doubling_bytes,
                    settings.halving_doubling_bytes,
                ),
                segment_bytes=settings.segment_bytes,
                ranks_per_node=settings.ranks_per_node,
                single_copy=settings.single_copy,
                huge_pages=settings.huge_pages,
                debug=settings.debug,
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
        self._c_abi = _engine.CAbi(self._engine)
        self.rank: int = self._engine.rank
        self.size: int = self._engine.size

    def settings(self) -> dict[str, str | int | float | bool]:
        """Its findings: nodes, lanes between them, what memory allows, the instruction set."""
        engine = self._engine
        return {
            "num_nodes": engine.num_nodes,
            "num_lanes": engine.num_lanes,
            "single_copy": engine.obstacle_to_single_copies or "yes",
            "huge_pages": engine.obstacle_to_huge_pages or "yes",
            "instruction_set": engine.instruction_set,
            "crowded": engine.oversubscribed,
        }

    def counts(self) -> dict[str, tuple[int, int]]:
        """By operation: this rank's calls since it joined, and the bytes of their messages.

        Calls by TensorFlow's operations are included. A message is the buffer of an allreduce or broadcast, the input
        of a reduce-scatter, the output of an allgather. Never blocks, so any thread may ask.
        """
        return self._engine.counts()

    @property
    def c_interface(self) -> int:
        """Address of a DlscaleCollective (src/c_interface.hpp), valid as long as this object."""
        return self._c_abi.address

    def allreduce(self, buffer: NDArray[Any], op: str = "sum", *, bfloat16: bool = False) -> None:
        """Replace `buffer` by its sum, average, min or max over ranks, in place; all ranks get the same bits.

        Inside a node elements are added in order of rank, one by one; float16 and bfloat16 in float32, rounded
        once. A part of an array from `empty` is reduced without any copy.
        """
        try:
            self._engine.allreduce(buffer, op, bfloat16)
        except REFUSALS:
            check_buffer(buffer, dtypes=EXTENDED_DTYPES)
            check_operation(op, buffer)
            raise

    def reduce_scatter(
        self, buffer: NDArray[Any], output: NDArray[Any], op: str = "sum", *, bfloat16: bool = False
    ) -> None:
        """Fill `output` with this rank's part of the reduction: the rank-th of `size` equal parts of `buffer`.

        `output` may be that very part of `buffer`.
        """
        try:
            self._engine.reduce_scatter(buffer, output, op, bfloat16)
        except REFUSALS:
            check_buffer(buffer, dtypes=EXTENDED_DTYPES, written=False)
            check_buffer(output, dtypes=EXTENDED_DTYPES)
            check_operation(op, output)
            raise

    def allgather(self, piece: NDArray[Any], output: NDArray[Any], *, bfloat16: bool = False) -> None:
        """Fill `output` with the pieces of all ranks, one after the other in order of rank.

        `piece` may be this rank's part of `output`.
        """
        try:
            self._engine.allgather(piece, output, bfloat16)
        except REFUSALS:
            check_buffer(piece, dtypes=EXTENDED_DTYPES, written=False)
            check_buffer(output, dtypes=EXTENDED_DTYPES)
            raise

    def allgather_bytes(self, message: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """The messages of all ranks, in order of rank (`compression.compressors.Carrier`).

        Shorter ones travel as if they were as long as the longest.
        """
        lengths = np.empty(self.size, np.int64)
        self.allgather(np.array([message.size], np.int64), lengths)
        num_words = -(-int(lengths.max()) // WORD_BYTES)
        if not num_words:
            return [message] * self.size
        own, everyone = np.empty(num_words, np.int32), np.empty((self.size, num_words), np.int32)
        own.view(np.uint8)[: message.size] = message
        self.allgather(own, everyone)
        return [row.view(np.uint8)[:length] for row, length in zip(everyone, lengths, strict=True)]

    def average_halves(self, values: NDArray[Any]) -> None:
        """The mean of float16, or of uint16 that holds bfloat16, in place."""
        self.allreduce(values, "average", bfloat16=values.dtype == np.uint16)

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        """An array of `count` zeros in memory that the ranks of a node share; collective.

        An allreduce of it, or of a contiguous part of it (the same part on all ranks), writes the results straight
        into all ranks' arrays. It stays valid after `close`. Raises MemoryError if there is too little memory.
        """
        kind = check_length(count, dtype, dtypes=EXTENDED_DTYPES)
        num_bytes = min(count * kind.itemsize, MOST_BYTES)  # more is refused with the rest
        return self._engine.share(max(num_bytes, 1))[:num_bytes].view(kind)

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        try:
            self._engine.broadcast(buffer, root)
        except REFUSALS:
            check_buffer(buffer, dtypes=EXTENDED_DTYPES)
            check_root(root, size=self.size)
            raise

    def barrier(self) -> None:
        self._engine.barrier()

    def close(self) -> None:
        """Free memory and communicators; a second call does nothing. Arrays from `empty` stay valid."""
        self._engine.close()
