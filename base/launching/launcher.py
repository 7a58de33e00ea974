"""What a launcher is: the start that it is given, its command line, and what it tells its ranks and prints of deaths.

`env` in front of srun, jsrun and flux run sets variables, for they pass their environment on: their options for single
variables split values at commas (srun) or replace $ and {{ (flux), KMP_AFFINITY is full of commas, and some variables
(CRAY_CUDA_MPS) are for the launcher itself. aprun and mpiexec take a value as one word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program on nodes of an allocation, with ranks in blocks: node i starts with rank i * ranks_per_node."""

    nodes: tuple[str, ...] = ()  # the nodes to use, a nested subset of the job's; empty: this machine alone
    num_ranks: int
    ranks_per_node: int
    cpus_per_rank: int = 1  # hardware threads that the launcher may give each rank
    unnamed_nodes: int = 0  # the number of nodes in a plan, where `nodes` is still unknown
    devices_per_rank: int = 0
    launch_options: tuple[str, ...] = ()
    variables: Mapping[str, str]
    program: Sequence[str]
    folder: str = ""  # of the launch, for the launcher's own files

    @property
    def is_in_job(self) -> bool:
        """Whether the nodes are those of a scheduler's job, though it may not have named them yet."""
        return bool(self.unnamed_nodes or self.nodes)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, at least one."""
        return max(1, self.unnamed_nodes, len(self.nodes))

    def gives(self, *options: str) -> bool:
        """Whether the system's launch options set this already."""
        return any(option.startswith(options) for option in self.launch_options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A launcher. `schedulers`: in whose jobs it starts programs; empty: in those of all.

    `needs_mpi`: its ranks are those of an MPI, which then carries the control plane. `needs_job`: it starts nothing
    outside a scheduler's job. `open_ports`: over several nodes its ranks meet at a port that asks nobody who connects.
    `ranks`, `local_ranks` and `sizes` are the variables that tell a process its rank, that on its node, and how many
    processes there are. `death` is what the launcher prints when a rank dies (groups `rank` and `how`).
    """

    command: Callable[[Start], list[str]]
    per_node: Callable[[int], list[str]]  # the prefix that starts a program once on each of so many nodes
    schedulers: tuple[str, ...] = ()
    needs_mpi: bool = True
    needs_job: bool = True
    open_ports: bool = False
    ranks: tuple[str, ...] = ()
    local_ranks: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    death: re.Pattern[str] | None = None


def set_by_env(variables: Mapping[str, str]) -> list[str]:
    """The words in front of a launcher that passes its environment on."""
    return ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []
