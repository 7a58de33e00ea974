"""The user's settings of the ring. The same names are the options of backend `ring`."""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.base.errors import UsageError
from dlscale.collectives.option_kinds import CheckedOptions, at_least, one_of, option
from dlscale.collectives.ring.pieces import DOMAINS

SHARED_MEMORY = ("auto", "memfd", "shm")
WIRES = ("float32", "bfloat16")
MAX_SEGMENT_BYTES = 2**30  # MPI counts are C ints
MAX_SWITCH_POINT = 2**62  # more than any message, and still a number for C++
SWITCH_POINTS = ("one_shot_bytes", "recursive_doubling_bytes", "halving_doubling_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(CheckedOptions):
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

    timeout_seconds: float = option(300.0, lambda seconds: seconds > 0, "give more than 0")
    shared_memory: str = one_of(SHARED_MEMORY, "auto")
    segment_bytes: int = at_least(0, 0, most=MAX_SEGMENT_BYTES)
    one_shot_bytes: int = at_least(-1, -1, most=MAX_SWITCH_POINT)
    recursive_doubling_bytes: int = at_least(-1, -1, most=MAX_SWITCH_POINT)
    halving_doubling_bytes: int = at_least(-1, -1, most=MAX_SWITCH_POINT)
    single_copy: bool = True
    huge_pages: bool = True
    cores: int = at_least(0, 1)
    domains: str = one_of(DOMAINS, "")
    ranks_per_node: int = at_least(0, 0)
    debug: bool = False
    wire: str = one_of(WIRES, "float32")
    error_feedback: bool = True

    def check_together(self) -> None:
        """Returns if the options fit each other. Raises UsageError."""
        if self.domains and self.ranks_per_node:
            raise UsageError("options domains and ranks_per_node both cut nodes; give one of them")
