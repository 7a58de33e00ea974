"""The user's settings of the ring. The same names are the options of backend `ring`."""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.base.errors import UsageError
from dlscale.collectives.ring.pieces import DOMAINS

SHARED_MEMORY = ("auto", "memfd", "shm")
WIRES = ("float32", "bfloat16")
MAX_SEGMENT_BYTES = 2**30  # MPI counts are C ints
SWITCH_POINTS = ("one_shot_bytes", "recursive_doubling_bytes", "halving_doubling_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the ring waits, shares memory and cuts messages; it decides itself where a setting is 0 or empty.

    `timeout_seconds`: how long to wait for a rank before it counts as a straggler; a dead rank on the same node is
    detected within a second. `shared_memory`: memfd (no name, no size limit but the memory), shm (files in /dev/shm) or
    auto. `single_copy`: let the kernel copy large messages between the ranks' own memory where it may and that is
    faster than shared memory. `huge_pages`: own memory from 2 MiB on lies on pages of 2 MiB while there are free ones.
    `cores`: of each rank, that share large reductions and copies inside the node; 0: the rank's share of the CPUs that
    it may run on. `segment_bytes`: the largest message between nodes. `one_shot_bytes`, `recursive_doubling_bytes`,
    `halving_doubling_bytes`: up to which size allreduces between nodes take that algorithm, in this order, and the ring
    above; -1: the engine's own switch points. `domains`: cut nodes into their NUMA domains (numa) or sockets (socket),
    so that less crosses between these; ranks must be bound to them. `ranks_per_node`: cut nodes into pieces of so many
    ranks, to try several nodes on one machine. `debug`: compare the arguments of all ranks before every operation.
    `wire`: what float32 travels as when it is summed or averaged; as bfloat16 it is rounded, and with `error_feedback`
    the rounding error of a gradient is added to the next one (see bfloat16.py).
    """

    timeout_seconds: float = 300.0
    shared_memory: str = "auto"
    segment_bytes: int = 0
    one_shot_bytes: int = -1
    recursive_doubling_bytes: int = -1
    halving_doubling_bytes: int = -1
    single_copy: bool = True
    huge_pages: bool = True
    cores: int = 1
    domains: str = ""
    ranks_per_node: int = 0
    debug: bool = False
    wire: str = "float32"
    error_feedback: bool = True

    def __post_init__(self) -> None:
        if self.shared_memory not in SHARED_MEMORY:
            choices = ", ".join(SHARED_MEMORY)
            raise UsageError(f"option shared_memory is {self.shared_memory!r}; choose one of: {choices}")
        if self.wire not in WIRES:
            raise UsageError(f"option wire is {self.wire!r}; choose one of: {', '.join(WIRES)}")
        if not self.timeout_seconds > 0:
            raise UsageError(f"option timeout_seconds is {self.timeout_seconds}; give more than 0")
        if not 0 <= self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise UsageError(f"option segment_bytes is {self.segment_bytes}; give 1 .. {MAX_SEGMENT_BYTES}")
        for name in SWITCH_POINTS:
            if getattr(self, name) < -1:
                raise UsageError(
                    f"option {name} is {getattr(self, name)}; give 0 or more, or -1 for the default"
                )
        if self.cores < 0:
            raise UsageError(f"option cores is {self.cores}; give 1 or more, or 0 for the rank's share")
        if self.domains not in DOMAINS:
            raise UsageError(
                f"option domains is {self.domains!r}; choose one of: {', '.join(filter(None, DOMAINS))}"
            )
        if self.ranks_per_node < 0:
            raise UsageError(f"option ranks_per_node is {self.ranks_per_node}; give 0 or more")
        if self.domains and self.ranks_per_node:
            raise UsageError("options domains and ranks_per_node both cut nodes; give one of them")
