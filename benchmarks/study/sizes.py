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
from collections.abc import Sequence
from dataclasses import dataclass

from dlscale.base.errors import UsageError, unknown
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.system import Partition, Policy, System

DEFAULT_MAX_NODES = 64  # the default must not make a first study expensive


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """A point of a curve. Ranks fill one node after the other."""

    num_nodes: int
    num_ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The points of a study on a machine, and the cores of a rank."""

    sizes: tuple[Size, ...]
    ranks_per_node: int | None  # None: one node, with all ranks of a size
    num_cores: int  # of a node
    cores_per_rank: int
    threads_per_rank: int  # its cores, unless the system's placement sets OMP_NUM_THREADS

    def num_nodes(self, num_processes: int) -> int:
        """Nodes needed for that many workers and servers."""
        return math.ceil(num_processes / self.ranks_per_node) if self.ranks_per_node else 1

    @property
    def ranks(self) -> list[int]:
        """Numbers of workers, ascending."""
        return [size.num_ranks for size in self.sizes]


def shape(study: Study, system: System) -> Shape:
    """The points that a study asks for, or the usual ones. Raises UsageError for what the system cannot do."""
    if system.scheduler == "none":
        return _of_one_node(study, system)
    _check_devices(study, system)
    partition = chosen_partition(study, system)
    per_node = _ranks_per_node(study, system)
    most = (partition.max_nodes or partition.num_nodes).value
    if study.ranks and study.nodes:
        raise UsageError(
            "--ranks and --nodes exclude each other; give one: ranks fill one node after the other"
        )
    if study.ranks:
        sizes = [Size(math.ceil(ranks / per_node), ranks) for ranks in _with_base(study, study.ranks)]
    else:
        nodes = study.nodes or usual_counts(min(most, DEFAULT_MAX_NODES))
        sizes = [Size(count, count * per_node) for count in nodes]
        # Base case (b) of M2: one rank through each backend.
        sizes += [Size(1, 1)] if min(nodes) == 1 else []
    if too_large := [size.num_nodes for size in sizes if size.num_nodes > most]:
        raise UsageError(
            f"{too_large[0]} nodes on partition {study.partition or system.partition} of {system.name}, which allows "
            f"{most} per job; use fewer, or another --partition ({', '.join(system.partitions)})"
        )
    cores, placement = system.num_cores() // per_node, system.placement
    # The placement's threads hold for its own ranks per node.
    placed = placement.variables if placement and per_node == placement.ranks_per_node else {}
    return Shape(
        sizes=tuple(sorted(set(sizes))),
        ranks_per_node=per_node,
        num_cores=system.num_cores(),
        cores_per_rank=cores,
        threads_per_rank=int(placed.get("OMP_NUM_THREADS", cores)),
    )


def chosen_partition(study: Study, system: System) -> Partition:
    """The study's partition, or the system's default. Raises UsageError."""
    name = study.partition or system.partition or ""
    if name not in system.partitions:
        raise UsageError(unknown("partition", name, system.partitions, where=f"on {system.name}"))
    return system.partitions[name]


def _of_one_node(study: Study, system: System) -> Shape:
    num_cores = system.num_cores()
    ranks = sorted(_with_base(study, study.ranks) if study.ranks else {*usual_counts(num_cores), num_cores})
    return Shape(
        sizes=tuple(Size(1, count) for count in ranks),
        ranks_per_node=None,
        num_cores=num_cores,
        cores_per_rank=max(1, num_cores // ranks[-1]),
        threads_per_rank=max(1, num_cores // ranks[-1]),
    )


def _with_base(study: Study, ranks: Sequence[int]) -> set[int]:
    """The numbers of ranks, with the base case's 1 unless the study has another base."""
    return {*ranks, *([1] if study.base in (None, "1", "own") else [])}


def usual_counts(most: int) -> list[int]:
    """Powers of two up to `most`, and 3 as a size that is not one (M6)."""
    powers = [1 << exponent for exponent in range(most.bit_length())]
    return sorted({*powers, *([3] if most >= 4 else [])})


def _ranks_per_node(study: Study, system: System) -> int:
    placement = system.placement
    per_node = study.ranks_per_node or (placement.ranks_per_node if placement else 1)
    if per_node > system.num_cores():
        raise UsageError(
            f"{per_node} ranks per node on {system.name}, whose nodes have {system.num_cores()} usable cores; "
            "set fewer ranks_per_node"
        )
    return per_node


def _check_devices(study: Study, system: System) -> None:
    """Returns if every rank has a device of its own on the nodes. Raises UsageError."""
    if study.device == "cpu":
        return
    if not system.devices:
        raise UsageError(f"--device {study.device} on {system.name}, whose nodes have none; leave it out")
    per_node, most = _ranks_per_node(study, system), system.devices.per_node.value
    if per_node > most:
        raise UsageError(
            f"{per_node} ranks per node on device {study.device} of {system.name}, whose nodes have {most} "
            f"({system.devices.model.value}); set ranks_per_node={most} or fewer, or --device cpu"
        )


def tiers(sizes: Sequence[Size], policy: Policy) -> list[list[Size]]:
    """The sizes in ascending order, one list per job; sizes on the same number of nodes stay together."""
    nodes = sorted({size.num_nodes for size in sizes})
    alone = policy.jobs == "chained" or policy.max_sizes == 1
    cuts = [[count] for count in nodes] if alone else _shared(nodes, policy)
    return [[size for size in sorted(sizes) if size.num_nodes in cut] for cut in cuts]


def _shared(nodes: Sequence[int], policy: Policy) -> list[list[int]]:
    cuts = [[nodes[0]]]
    for count in nodes[1:]:
        current = cuts[-1]
        if len(current) < policy.max_sizes and count <= current[0] * policy.max_factor:
            current.append(count)
        else:
            last = current[-1]
            # A neighbour further away than the factor is not worth running twice.
            cuts.append([last, count] if count <= last * policy.max_factor else [count])
    return cuts
