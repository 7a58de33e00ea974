"""The ring in C++: src/. Buffers are checked in dlscale.collectives.buffers before they come here."""

from typing import Any

from numpy.typing import NDArray

MPI_VENDOR: str
"""The MPI that the extension was compiled with, by mpi4py's name for it."""

def library_version() -> str:
    """What the MPI library that the extension calls says of itself."""

def chunk_bounds(count: int, size: int, chunk: int) -> tuple[int, int]:
    """First element of a chunk and the one after its last, of `count` elements over `size` ranks."""

def ring_schedule(
    count: int, rank: int, size: int, max_segment: int
) -> list[tuple[tuple[int, int], tuple[int, int], bool, int, int]]:
    """The messages of one rank in order: bounds sent, bounds received, whether what is received is added,
    messages received before this one may be sent, messages sent before this one may be received.
    """

class Engine:
    """The collective operations of one communicator; see src/engine.hpp."""

    def __init__(self, comm: int, segment_bytes: int) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def crowded(self) -> bool:
        """Ranks outnumber CPUs on this node, so waiting gives the CPU away at once."""

    def allreduce(self, buffer: NDArray[Any]) -> None: ...
    def broadcast(self, buffer: NDArray[Any], root: int) -> None: ...
    def barrier(self) -> None: ...
    def close(self) -> None: ...
