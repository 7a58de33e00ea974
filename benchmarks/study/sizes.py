"""Numbers of ranks and nodes: the points of a scaling curve, and which of them share a job.

A job is billed for all of its nodes while a launch uses one. So sizes that lie far apart get separate jobs, and
neighbouring jobs share one size, at which their curves join:

    nodes   1  2  4  8  16  32  64  128
    tier 0  x  x  x  x
    tier 1           x  x   x   x
    tier 2                      x   x
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dlscale.base.errors import UsageError, unknown
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.system import Partition, Policy, System

DEFAULT_MAX_NODES = 64  # the default must not make a first study expensive


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The points of a study on a machine, and the cores of a rank. Ranks fill one node after the other."""

    ranks: tuple[int, ...]  # ascending
    ranks_per_node: int | None  # None: one node, with all ranks of a size
    num_cores: int  # of a node
    cores_per_rank: int
    threads_per_rank: int  # its cores, unless the system's placement sets OMP_NUM_THREADS

    def num_nodes(self, num_processes: int) -> int:
        """Nodes needed for that many workers and servers."""
        return math.ceil(num_processes / self.ranks_per_node) if self.ranks_per_node else 1


def shape(study: Study, system: System) -> Shape:
    """The points that a study asks for, or the usual ones. Raises UsageError for what the system cannot do."""
    num_cores, placement = system.num_cores(), system.placement
    ranks = {*(study.ranks or ()), *([1] if study.base in (None, "1", "own") else ())}
    if not system.has_jobs:
        ranks = ranks if study.ranks else {*usual_counts(num_cores), num_cores}
        cores = max(1, num_cores // max(ranks))
        return Shape(
            ranks=tuple(sorted(ranks)), ranks_per_node=None, num_cores=num_cores, cores_per_rank=cores,
            threads_per_rank=cores,
        )  # fmt: skip
    per_node, room = study.ranks_per_node or (placement.ranks_per_node if placement else 1), num_cores
    if study.device == "gpu":
        room = system.devices.per_node.value if system.devices else 0
    if per_node > room:
        raise UsageError(
            f"{per_node} ranks per node on device {study.device} of {system.name}, whose nodes have room for {room}; "
            "set fewer ranks_per_node, or another --device"
        )
    if study.ranks and study.nodes:
        raise UsageError(
            "--ranks and --nodes exclude each other; give one: ranks fill one node after the other"
        )
    partition = chosen_partition(study, system)
    most = (partition.max_nodes or partition.num_nodes).value
    if not study.ranks:
        nodes = study.nodes or usual_counts(min(most, DEFAULT_MAX_NODES))
        # Base case (b) of M2: one rank through each backend.
        ranks = {*(count * per_node for count in nodes), *([1] if min(nodes) == 1 else ())}
    if (asked := math.ceil(max(ranks) / per_node)) > most:
        raise UsageError(
            f"{asked} nodes on partition {study.partition or system.partition} of {system.name}, which allows {most} "
            f"per job; use fewer, or another --partition ({', '.join(system.partitions)})"
        )
    # The placement's threads hold for its own ranks per node.
    placed = placement.variables if placement and per_node == placement.ranks_per_node else {}
    cores = num_cores // per_node
    return Shape(
        ranks=tuple(sorted(ranks)), ranks_per_node=per_node, num_cores=num_cores, cores_per_rank=cores,
        threads_per_rank=int(placed.get("OMP_NUM_THREADS", cores)),
    )  # fmt: skip


def chosen_partition(study: Study, system: System) -> Partition:
    """The study's partition, or the system's default. Raises UsageError."""
    name = study.partition or system.partition or ""
    if name not in system.partitions:
        raise UsageError(unknown("partition", name, system.partitions, where=f"on {system.name}"))
    return system.partitions[name]


def usual_counts(most: int) -> list[int]:
    """Powers of two up to `most`, and 3 as a size that is not one (M6)."""
    powers = {1 << exponent for exponent in range(most.bit_length())}
    return sorted(powers | ({3} if most >= 4 else set()))


def tiers(nodes: Iterable[int], policy: Policy) -> list[list[int]]:
    """The numbers of nodes in ascending order, one list per job."""
    cuts: list[list[int]] = []
    for count in sorted({*nodes}):
        if cuts and len(cuts[-1]) < policy.max_sizes and count <= cuts[-1][0] * policy.max_factor:
            cuts[-1].append(count)
        # A neighbour further away than the factor is not worth running twice.
        elif cuts and policy.max_sizes > 1 and count <= cuts[-1][-1] * policy.max_factor:
            cuts.append([cuts[-1][-1], count])
        else:
            cuts.append([count])
    return cuts
