"""The ring in C++: src/. Buffers are checked in dlscale.collectives.buffers before they come here."""

from typing import Any

from numpy import float32, uint8
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

class NetworkTuning:
    """Which schedule for which size; see src/network/tuning.hpp."""

    def __init__(
        self,
        one_shot_bytes: int,
        recursive_doubling_bytes: int,
        halving_doubling_bytes: int,
        direct_bytes: int,
        tree_bytes: int,
        segments: list[tuple[int, int]],
        direct_segment_bytes: int,
        window: int,
    ) -> None: ...
    @property
    def one_shot_bytes(self) -> int: ...
    @property
    def recursive_doubling_bytes(self) -> int: ...
    @property
    def halving_doubling_bytes(self) -> int: ...
    @property
    def direct_bytes(self) -> int: ...
    @property
    def tree_bytes(self) -> int: ...
    @property
    def segments(self) -> list[tuple[int, int]]: ...
    @property
    def direct_segment_bytes(self) -> int: ...
    @property
    def window(self) -> int: ...

def default_tuning(num_ranks: int) -> NetworkTuning:
    """Switch points that suit this number of ranks between nodes."""

class Message:
    """A message that was begun by `isend` or `irecv`."""

    def wait(self, seconds: float = 0) -> bool:
        """Whether it is done within so many seconds; 0: as long as the ring waits for a rank. Raises RuntimeError."""

    @property
    def done(self) -> bool: ...
    @property
    def under_way(self) -> bool:
        """Neither done nor failed."""

    @property
    def source(self) -> int:
        """The rank that it came from, once it is done; of a message that is sent: the rank that it goes to."""

class Engine:
    """The collective operations of one communicator; see src/engine.hpp."""

    def __init__(
        self,
        comm: int,
        network: NetworkTuning,
        timeout_seconds: float,
        shared_memory: str,
        one_shot_bytes: int,
        variants: list[tuple[int, bool, bool]],
        block_bytes: int,
        piece: int,
        debug: bool,
        single_copy: bool,
        huge_pages: bool,
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def node_size(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_lanes(self) -> int: ...
    @property
    def oversubscribed(self) -> bool:
        """Ranks outnumber CPUs on this machine, so waiting gives the CPU away at once."""

    @property
    def memory_kind(self) -> str: ...
    @property
    def obstacle_to_single_copies(self) -> str:
        """Why ranks cannot copy from and to each other's memory; empty where they can."""

    @property
    def obstacle_to_huge_pages(self) -> str:
        """Why this rank's part of the own memory that was made last does not lie on huge pages; empty if it does."""

    @property
    def num_own_cpus(self) -> int:
        """This rank's share of the CPUs that it may run on, each divided among its ranks."""

    @property
    def num_cores(self) -> int:
        """Cores that share this rank's large reductions and copies; setting 0 takes its share of the node's."""

    @num_cores.setter
    def num_cores(self, num_cores: int) -> None: ...
    def choices(self) -> list[tuple[str, int, str, list[tuple[str, float]]]]:
        """The variants found to be fastest: operation, up to how many bytes, the variant in words, and the seconds per
        byte of all that were tried.
        """

    @property
    def instruction_set(self) -> str: ...
    def allreduce(self, buffer: NDArray[Any], op: str = "sum", bfloat16: bool = False) -> None: ...
    def reduce(self, buffer: NDArray[Any], op: str, root: int, bfloat16: bool = False) -> None: ...
    def exchange(
        self,
        name: str,
        sends: list[tuple[int, NDArray[Any]]],
        receives: list[tuple[int, NDArray[Any]]],
        root: int,
    ) -> None: ...
    def reduce_scatter(
        self, buffer: NDArray[Any], output: NDArray[Any], op: str = "sum", bfloat16: bool = False
    ) -> None: ...
    def allgather(self, piece: NDArray[Any], output: NDArray[Any], bfloat16: bool = False) -> None: ...
    def broadcast(self, buffer: NDArray[Any], root: int) -> None: ...
    def barrier(self) -> None: ...
    def send(self, buffer: NDArray[Any], to: int, tag: int) -> None: ...
    def recv(self, buffer: NDArray[Any], source: int | None, tag: int) -> int: ...
    def isend(self, buffer: NDArray[Any], to: int, tag: int) -> Message: ...
    def irecv(self, buffer: NDArray[Any], source: int | None, tag: int) -> Message: ...
    def share(self, num_bytes: int) -> NDArray[uint8]:
        """Zeroed bytes in memory that the node shares; collective."""

    def close(self) -> None: ...

class CAbi:
    """An engine behind the C ABI of src/c_interface.hpp."""

    def __init__(self, engine: Engine) -> None: ...
    @property
    def address(self) -> int:
        """Address of its DlscaleCollective; valid as long as this object."""

class Bfloat16Wire:
    """An engine whose float32 sums and averages travel as bfloat16; see src/bfloat16_wire.hpp."""

    def __init__(self, engine: Engine, error_feedback: bool) -> None: ...
    @property
    def address(self) -> int:
        """Address of its DlscaleCollective; valid as long as this object."""

    def allreduce(self, buffer: NDArray[Any], op: str, bfloat16: bool, bucket: int | None) -> None: ...
    def buckets(self) -> list[tuple[int, int]]:
        """Each bucket that has a residual, and its length."""

    def residual(self, bucket: int, count: int) -> NDArray[float32]:
        """A view of a bucket's residual, a row per place (src/residual.hpp); zeros if it is new."""

    def forget(self) -> None:
        """Drop all residuals; views from `residual` are dead."""
