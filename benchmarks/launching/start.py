"""What is started, and what launchers tell their processes. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dlscale.benchmarks.system import Partition, System

Flavour = Literal["mpich", "intelmpi", "openmpi"]

# Where each launcher tells a process its rank on the node and how many ranks it started. Slurm's come last: a job's
# script has them too, and another launcher may run inside. aprun says neither.
LOCAL_RANK_VARIABLES = (
    "MPI_LOCALRANKID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "JSM_NAMESPACE_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "FLUX_TASK_LOCAL_ID",
    "SLURM_LOCALID",
)
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "JSM_NAMESPACE_SIZE", "FLUX_JOB_SIZE", "SLURM_NTASKS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program on some nodes of an allocation, ranks in blocks: node i has the ranks from i * ranks_per_node on."""

    nodes: tuple[str, ...]  # the nodes to use, a nested subset of the job's; empty: this machine alone
    num_ranks: int
    ranks_per_node: int
    cpus_per_rank: int  # hardware threads that the launcher may give each rank
    unnamed_nodes: int = 0  # how many, where `nodes` are not known yet: a plan's
    devices_per_rank: int = 0
    launch_options: tuple[str, ...] = ()
    variables: Mapping[str, str]
    program: Sequence[str]

    @property
    def num_nodes(self) -> int:
        """At least one."""
        return max(1, self.unnamed_nodes, len(self.nodes))


def cpus_per_rank(system: System, ranks_per_node: int) -> int:
    """A rank's share of a node's hardware threads: whole cores, rounded down, times threads per core.

    aprun's option -j says how many threads of each core are used, if not all.
    """
    cores = max(1, system.num_cores() // ranks_per_node)
    options = list(system.placement.launch_options) if system.placement else []
    if system.launcher == "aprun" and "-j" in options:
        return cores * int(options[options.index("-j") + 1])
    threads = system.node.threads_per_core
    return cores * (threads.value if threads else 1)


def start_on(
    system: System,
    partition: Partition,
    *,
    nodes: tuple[str, ...],
    num_ranks: int,
    variables: Mapping[str, str],
    program: Sequence[str],
    ranks_per_node: int | None = None,  # None: as the system places them
) -> Start:
    """A start as the system's file has it: threads, devices and options of its partition and placement."""
    placement = system.placement
    share = ranks_per_node or (placement.ranks_per_node if placement else num_ranks)
    devices = system.devices.per_node.value // share if system.devices else 0
    return Start(
        nodes=nodes,
        num_ranks=num_ranks,
        ranks_per_node=min(share, num_ranks),
        cpus_per_rank=cpus_per_rank(system, share),
        devices_per_rank=devices,
        launch_options=(*partition.launch_options, *(placement.launch_options if placement else ())),
        variables=variables,
        program=program,
    )
