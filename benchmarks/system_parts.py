"""What a machine's TOML file describes, part by part: nodes, devices, network, partitions, placement."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from dlscale.benchmarks.quantities import Bandwidth, Bytes, Count, Flops, Frequency, Seconds, Text
from dlscale.benchmarks.record import Frozen


class Recognised(Frozen):
    """How a system knows itself: any of these is enough. Host names may have * and ?."""

    hostnames: list[str] = []
    variables: dict[str, str] = {}


class Node(Frozen):
    """One node. Peaks are per node, by data type (fp64, fp32, bf16 ...).

    `threads_per_core` are the hardware threads that the launcher hands out per core; None: one.
    """

    cores: Count | Literal["detect"]
    threads_per_core: Count | None = None
    cpu_model: Text | None = None
    cpu_frequency: Frequency | None = None
    numa_domains: Count | None = None
    memory: Bytes | None = None
    memory_bandwidth: Bandwidth | None = None
    peak: dict[str, Flops] = {}


class Devices(Frozen):
    """A node's accelerators, as frameworks count them; memory and peaks are of one."""

    per_node: Count
    model: Text
    memory: Bytes | None = None
    memory_bandwidth: Bandwidth | None = None
    peak: dict[str, Flops] = {}


class Fabric(Frozen):
    """The network between nodes. Bandwidth is a node's injection per direction, latency that of a small message."""

    name: Text
    topology: Text | None = None
    bandwidth: Bandwidth | None = None
    latency: Seconds | None = None
    nics_per_node: Count | None = None
    nodes_per_router: Count | None = None
    nodes_per_group: Count | None = None
    groups: Count | None = None
    bisection: Bandwidth | None = None


class Filesystem(Frozen):
    """Where studies keep their records, as a path that may name $VARIABLES, and how fast it is."""

    results: str
    bandwidth: Bandwidth | None = None


class Partition(Frozen):
    """Nodes that the scheduler hands out together.

    `directives` are the scheduler's own options, one per line of a script, without its marker; `launch_options`
    those of the launcher. The name is ours: a queue is asked for by a directive.
    """

    num_nodes: Count
    min_nodes: Count | None = None  # of one job: smaller ones are refused, or billed as if they were as large
    max_nodes: Count | None = None  # of one job; None: all
    max_walltime: Seconds | None = None  # None: not known, and then --walltime must be given
    directives: list[str] = []
    launch_options: list[str] = []


class Placement(Frozen):
    """How ranks lie on a node.

    The launcher is told the hardware threads of each rank: cores / ranks per node, rounded down, times threads per
    core. `reserved_cores` are left to the operating system.
    """

    ranks_per_node: PositiveInt
    reserved_cores: NonNegativeInt = 0
    launch_options: list[str] = []
    variables: dict[str, str] = {}


class Policy(Frozen):
    """How a study is cut into jobs.

    `shared`: one job runs several node counts on nested subsets of its nodes, at most `max_sizes` of them within a
    factor of `max_factor`, and neighbouring jobs share one size. `chained`: one job per node count, the largest first,
    each after the one before.
    """

    jobs: Literal["shared", "chained"] = "shared"
    max_sizes: PositiveInt = 4
    max_factor: PositiveInt = 8
    margin: float = 1.25  # of a job's wall time over the estimate
