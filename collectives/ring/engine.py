"""The ring in Python: `Ring`, the collective operations of one communicator over the C++ engine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.buffers import (
    DTYPES,
    EXTENDED_DTYPES,
    check_array,
    check_buffer,
    check_length,
    check_operation,
    check_overlap,
    check_root,
)
from dlscale.collectives.ring.messages import REFUSALS, Messages
from dlscale.collectives.ring.mpi_match import (
    REINSTALL,
    require_same_library,
    require_same_mpi,
    require_same_world,
)
from dlscale.collectives.ring.pieces import num_numa_domains, piece_here
from dlscale.collectives.ring.settings import SWITCH_POINTS, Settings

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

require_same_mpi(compiled=_engine.MPI_VENDOR, loaded=MPI.get_vendor()[0])
require_same_library(called=_engine.library_version(), loaded=MPI.Get_library_version())


RING_DTYPES = frozenset(DTYPES + EXTENDED_DTYPES)

# Inside a node; both leave it to the engine, which finds out what is fastest.
ONE_SHOT_BYTES = 0
NO_VARIANTS: list[tuple[int, bool, bool]] = []
BLOCK_BYTES = 8 * 1024 * 1024

WORD_BYTES = 4
NO_LIMIT = 2**63
MOST_BYTES = 2**60  # far more than there is, and still a number for C++


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The variant that messages of more than half of `up_to_bytes`, and at most so many, are moved by.

    `gigabytes_per_second`: what it and the others moved when they were tried last; of those within 5 % of the fastest
    the first that was tried is taken.
    """

    operation: str
    up_to_bytes: int
    variant: str
    gigabytes_per_second: dict[str, float]


class Ring(Messages):
    """Collective operations over the ranks of `control`, on a communicator of their own (`Collective`).

    Every method but the properties is collective and blocking: all ranks call the same ones in the same
    order, with buffers equal in dtype and length; only messages are between two ranks (`Messages`).
    Buffers are C-contiguous NumPy arrays of float32, float64,
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
        self._settings = Settings() if settings is None else settings
        here = piece_here(
            control, ranks_per_node=self._settings.ranks_per_node, domains=self._settings.domains
        )
        _check_cores(self._settings.cores)
        self._engine = _engine.Engine(
            comm=control.py2f(),
            network=_network_tuning(control.Get_size(), self._settings),
            timeout_seconds=self._settings.timeout_seconds,
            shared_memory=self._settings.shared_memory,
            one_shot_bytes=ONE_SHOT_BYTES,
            variants=NO_VARIANTS,
            block_bytes=BLOCK_BYTES,
            piece=here[1],
            debug=self._settings.debug,
            single_copy=self._settings.single_copy,
            huge_pages=self._settings.huge_pages,
        )
        if self._settings.cores != 1:
            self._engine.num_cores = self._settings.cores
        self._num_reserved = 0
        self._c_abi = _engine.CAbi(self._engine)
        super().__init__(self._engine)

    def settings(self) -> dict[str, str | int | float | bool]:
        """Its findings and decisions: nodes, lanes between them, the kind of shared memory, the instruction set."""
        engine = self._engine
        return {
            "num_nodes": engine.num_nodes,
            "num_lanes": engine.num_lanes,
            "numa_domains": num_numa_domains(),
            "shared_memory": engine.memory_kind,
            "single_copy": engine.obstacle_to_single_copies or "yes",
            "huge_pages": engine.obstacle_to_huge_pages or "yes",
            "cores": engine.num_cores,
            "instruction_set": engine.instruction_set,
            "crowded": engine.oversubscribed,
        }

    def leave_cores(self) -> None:
        """From now on only the caller's core works at an operation: the others compute meanwhile."""
        self._engine.num_cores = 1

    def choices(self) -> list[Choice]:
        """Which way of moving large messages inside the node was found to be fastest, by operation and size."""
        return [
            Choice(
                operation=operation,
                up_to_bytes=up_to_bytes,
                variant=variant,
                gigabytes_per_second={name: 1e-9 / seconds for name, seconds in tried},
            )
            for operation, up_to_bytes, variant, tried in self._engine.choices()
        ]

    @property
    def c_interface(self) -> int:
        """Address of a DlscaleCollective (src/c_interface.hpp), valid as long as this object."""
        return self._c_abi.address

    def allreduce(
        self,
        buffer: NDArray[Any],
        op: str = "sum",
        *,
        bfloat16: bool = False,
        bucket: int | None = None,  # noqa: ARG002  # of use where rounding keeps what it takes away
    ) -> None:
        """Replace `buffer` by its sum, average, min or max over ranks, in place; all ranks get the same bits.

        Inside a node elements are added in order of rank, one by one; float16 and bfloat16 in float32, rounded
        once. A part of an array from `empty` is reduced without any copy.
        """
        try:
            if type(buffer) is not np.ndarray:
                _check_arrays(buffer)
            self._engine.allreduce(buffer, op, bfloat16)
        except REFUSALS:
            check_buffer(buffer, dtypes=RING_DTYPES)
            check_operation(op, buffer)
            check_bfloat16(bfloat16)
            raise

    def reduce(self, buffer: NDArray[Any], op: str = "sum", root: int = 0, *, bfloat16: bool = False) -> None:
        """Replace root's buffer by its sum, average, min or max over ranks; what the others' hold then does not count.

        It is done as an allreduce: inside a node the ranks share the additions in either case.
        """
        try:
            if type(buffer) is not np.ndarray:
                _check_arrays(buffer)
            self._engine.reduce(buffer, op, root, bfloat16)
        except REFUSALS:
            check_buffer(buffer, dtypes=RING_DTYPES)
            check_operation(op, buffer)
            check_root(root, size=self.size)
            check_bfloat16(bfloat16)
            raise

    def reduce_scatter(
        self, buffer: NDArray[Any], output: NDArray[Any], op: str = "sum", *, bfloat16: bool = False
    ) -> None:
        """Fill `output` with this rank's part of the reduction: the rank-th of `size` equal parts of `buffer`.

        `output` may be that very part of `buffer`.
        """
        try:
            if type(buffer) is not np.ndarray or type(output) is not np.ndarray:
                _check_arrays(buffer, output)
            self._engine.reduce_scatter(buffer, output, op, bfloat16)
        except REFUSALS:
            check_buffer(buffer, dtypes=RING_DTYPES, written=False)
            check_buffer(output, dtypes=RING_DTYPES)
            check_operation(op, output)
            check_bfloat16(bfloat16)
            check_overlap(buffer, output, place=self.rank)
            raise

    def allgather(self, piece: NDArray[Any], output: NDArray[Any], *, bfloat16: bool = False) -> None:
        """Fill `output` with the pieces of all ranks, one after the other in order of rank.

        `piece` may be this rank's part of `output`.
        """
        try:
            if type(piece) is not np.ndarray or type(output) is not np.ndarray:
                _check_arrays(piece, output)
            self._engine.allgather(piece, output, bfloat16)
        except REFUSALS:
            check_buffer(piece, dtypes=RING_DTYPES, written=False)
            check_buffer(output, dtypes=RING_DTYPES)
            check_bfloat16(bfloat16)
            check_overlap(output, piece, place=self.rank)
            raise

    def allgather_bytes(self, message: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """The messages of all ranks, in order of rank (`compression.links.Transport`).

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

    def reserve_buckets(self, count: int) -> int:
        """The first of `count` numbers for `allreduce`'s buckets that nobody else was given."""
        first = self._num_reserved
        self._num_reserved += count
        return first

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        """An array of `count` zeros in memory that the ranks of a node share; collective.

        An allreduce of it, or of a contiguous part of it (the same part on all ranks), writes the results straight
        into all ranks' arrays. It stays valid after `close`. Raises MemoryError if there is too little memory.
        """
        kind = check_length(count, dtype, dtypes=RING_DTYPES)
        num_bytes = min(count * kind.itemsize, MOST_BYTES)  # more is refused with the rest
        return self._engine.share(max(num_bytes, 1))[:num_bytes].view(kind)

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        try:
            if type(buffer) is not np.ndarray:
                _check_arrays(buffer)
            self._engine.broadcast(buffer, root)
        except REFUSALS:
            check_buffer(buffer, dtypes=RING_DTYPES)
            check_root(root, size=self.size)
            raise

    def barrier(self) -> None:
        self._engine.barrier()

    def close(self) -> None:
        """Free memory and communicators; a second call does nothing. Arrays from `empty` stay valid."""
        self._engine.close()


def _check_arrays(*buffers: NDArray[Any]) -> None:
    """Returns if all are arrays of NumPy's; the engine would take other memory, too. Raises TypeError."""
    for buffer in buffers:
        if type(buffer) is not np.ndarray:
            check_array(buffer)


def check_bfloat16(told: object) -> None:
    """Returns if it says whether uint16 holds bfloat16. Raises TypeError."""
    if not isinstance(told, bool):
        raise TypeError(f"bfloat16 is {told!r}; give True or False")


def _network_tuning(num_ranks: int, settings: Settings) -> _engine.NetworkTuning:
    """The engine's switch points between nodes, with those of the settings in their place."""
    tuning = _engine.default_tuning(num_ranks)
    own = {name: getattr(settings, name) for name in SWITCH_POINTS}
    segment_bytes = settings.segment_bytes
    return _engine.NetworkTuning(
        **{name: getattr(tuning, name) if value < 0 else value for name, value in own.items()},
        direct_bytes=tuning.direct_bytes,
        tree_bytes=tuning.tree_bytes,
        segments=[(NO_LIMIT, segment_bytes)] if segment_bytes else tuning.segments,
        direct_segment_bytes=segment_bytes or tuning.direct_segment_bytes,
        window=tuning.window,
    )


def _check_cores(cores: int) -> None:
    """Returns if this rank may run on so many. Raises UsageError."""
    own = len(os.sched_getaffinity(0))
    if cores > own:
        raise UsageError(
            f"option cores is {cores}, but this rank is bound to {own} CPUs; give {own} or fewer, or bind ranks to more"
        )
