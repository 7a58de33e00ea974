"""The ring in C++: src/. Buffers are checked in dlscale.collectives.buffers before they come here."""

from typing import Any

from numpy import uint8
from numpy.typing import NDArray

MPI_VENDOR: str
"""The MPI that the extension was compiled with, by mpi4py's name for it."""

def library_version() -> str:
    """Version text of the MPI library that the extension calls."""

def network_schedule(
    operation: str, algorithm: str, rank: int, size: int, count: int, max_segment: int, root: int = 0
) -> tuple[
    list[tuple[int, tuple[int, int], int]], list[tuple[int, tuple[int, int], str, bool, int, int]], int, int
]:
    """One rank's messages between nodes: sends, receives, the longest in scratch, the largest reduction.

    A send: peer, bounds, receives worked off before. A receive: peer, bounds, stored/held/reduced, whether it
    completes its elements, sends completed before, receives worked off before.
    """

def default_switch_points(num_ranks: int) -> tuple[int, int, int]:
    """Up to which size an allreduce between nodes is one-shot, doubled recursively, halved and doubled."""

class Engine:
    """The collective operations of one communicator; see src/engine.hpp."""

    def __init__(
        self,
        comm: int,
        timeout_seconds: float,
        switch_points: tuple[int, int, int],
        segment_bytes: int,
        ranks_per_node: int,
        single_copy: bool,
        huge_pages: bool,
        debug: bool,
    ) -> None:
        """Switch points below 0 and a segment of 0 stand for the defaults."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_lanes(self) -> int: ...
    @property
    def oversubscribed(self) -> bool:
        """Ranks outnumber CPUs on this machine, so waiting gives the CPU away at once."""

    @property
    def obstacle_to_single_copies(self) -> str:
        """Why ranks cannot copy from and to each other's memory; empty where they can."""

    @property
    def obstacle_to_huge_pages(self) -> str:
        """Why this rank's part of the own memory that was made last does not lie on huge pages; empty if it does."""

    def choices(self) -> list[tuple[str, int, str, list[tuple[str, float]]]]:
        """The variants found to be fastest: operation, up to how many bytes, the variant in words, and the seconds per
        byte of all that were tried.
        """

    def counts(self) -> dict[str, tuple[int, int]]:
        """By operation: this rank's successful calls since it joined, and the bytes of their messages.

        A message is the buffer of an allreduce or broadcast, the input of a reduce-scatter, the output of an allgather.
        """

    @property
    def instruction_set(self) -> str: ...
    def allreduce(self, buffer: NDArray[Any], op: str = "sum", bfloat16: bool = False) -> None: ...
    def reduce_scatter(
        self, buffer: NDArray[Any], output: NDArray[Any], op: str = "sum", bfloat16: bool = False
    ) -> None: ...
    def allgather(self, piece: NDArray[Any], output: NDArray[Any], bfloat16: bool = False) -> None: ...
    def broadcast(self, buffer: NDArray[Any], root: int) -> None: ...
    def barrier(self) -> None: ...
    def share(self, num_bytes: int) -> NDArray[uint8]:
        """Zeroed bytes in memory that the node shares; collective."""

    def close(self) -> None: ...

class CAbi:
    """An engine behind the C ABI of src/c_interface.hpp."""

    def __init__(self, engine: Engine) -> None: ...
    @property
    def address(self) -> int:
        """Address of its DlscaleCollective; valid as long as this object."""
