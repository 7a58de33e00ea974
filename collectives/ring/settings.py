"""The user's settings of the ring. The same names are the options of backend `ring`."""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.collectives.option_kinds import CheckedOptions, at_least, option

MAX_SEGMENT_BYTES = 2**30  # MPI counts are C ints
MAX_SWITCH_POINT = 2**62  # more than any message, and still a number for C++


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(CheckedOptions):
    """How the ring waits, shares memory and cuts messages.

    `timeout_seconds`: how long to wait for a rank before it counts as a straggler; a dead rank on the same node is
    detected within a second. `single_copy`: let the kernel copy large messages between the ranks' own memory where it
    may and that is faster than shared memory. `huge_pages`: own memory from 2 MiB on lies on pages of 2 MiB while there
    are free ones. `segment_bytes`: the largest message between nodes; 0: by size. `one_shot_bytes`,
    `recursive_doubling_bytes`, `halving_doubling_bytes`: up to which size allreduces between nodes take that algorithm,
    in this order, and the ring above; -1: the engine's own switch points. `ranks_per_node`: cut nodes into pieces of so
    many ranks, to try several nodes on one machine; 0: as they are. `debug`: compare the arguments of all ranks before
    every operation.
    """

    timeout_seconds: float = option(300.0, lambda seconds: seconds > 0, "give more than 0")
    segment_bytes: int = at_least(0, 0, most=MAX_SEGMENT_BYTES)
    one_shot_bytes: int = at_least(-1, -1, most=MAX_SWITCH_POINT)
    recursive_doubling_bytes: int = at_least(-1, -1, most=MAX_SWITCH_POINT)
    halving_doubling_bytes: int = at_least(-1, -1, most=MAX_SWITCH_POINT)
    single_copy: bool = True
    huge_pages: bool = True
    ranks_per_node: int = at_least(0, 0)
    debug: bool = False
