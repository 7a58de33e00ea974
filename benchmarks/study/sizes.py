"""How many ranks on how many nodes: the points of a scaling curve, and which of them share a job.

A job on the largest number of nodes is billed for all of them while one node works. So sizes that lie far apart get
jobs of their own, and neighbouring jobs have one size in common, by which their curves can be joined:

    nodes   1  2  4  8  16  32  64  128
    tier 0  x  x  x  x
    tier 1           x  x   x   x
    tier 2                      x   x
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.system import Partition, Policy, System

DEFAULT_MAX_NODES = 64  # what a first study on a large machine may cost without being asked for


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """A point of a curve. Ranks fill one node after the other."""

    num_nodes: int
    num_ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The points of a study on a machine, and what a rank gets of its node."""

    sizes: tuple[Size, ...]
    ranks_per_node: int | None  # None: one node, and as many ranks on it as the size says
    num_cores: int  # of a node
    cores_per_rank: int
    threads_per_rank: int  # the cores, unless the system's file says another number for its own placement

    def num_nodes(self, num_processes: int) -> int:
        """Nodes for so many workers and servers."""
        return math.ceil(num_processes / self.ranks_per_node) if self.ranks_per_node else 1

    @property
    def ranks(self) -> list[int]:
        """Numbers of workers, ascending."""
        return [size.num_ranks for size in self.sizes]


def shape(study: Study, system: System) -> Shape:
    """The points that a study asks for, or the usual ones. Raises UsageError for what the system cannot do."""
    if system.scheduler == "none":
        return _of_one_node(study, system)
    partition = chosen_partition(study, system)
    per_node = _ranks_per_node(study, system)
    most = (partition.max_nodes or partition.num_nodes).value
    if study.ranks and study.nodes:
        raise UsageError("both --ranks and --nodes; give one of them: ranks fill one node after the other")
    if study.ranks:
        sizes = [Size(math.ceil(ranks / per_node), ranks) for ranks in study.ranks]
    else:
        nodes = study.nodes or _default_nodes(min(most, DEFAULT_MAX_NODES))
        sizes = [Size(count, count * per_node) for count in nodes]
        # Base case (b) of M2: one rank through each backend.
        sizes += [Size(1, 1)] if min(nodes) == 1 else []
    if too_large := [size.num_nodes for size in sizes if size.num_nodes > most]:
        raise UsageError(
            f"{too_large[0]} nodes on partition {study.partition or system.partition} of {system.name}, which gives "
            f"a job {most}; ask for fewer, or for another partition ({', '.join(system.partitions)})"
        )
    return Shape(
        sizes=tuple(sorted(set(sizes))),
        ranks_per_node=per_node,
        num_cores=system.num_cores(),
        cores_per_rank=system.num_cores() // per_node,
        threads_per_rank=_threads(system, per_node),
    )


def chosen_partition(study: Study, system: System) -> Partition:
    """The partition that was asked for, or the system's default one. Raises UsageError."""
    name = study.partition or system.partition or ""
    if name not in system.partitions:
        raise UsageError(
            f"no partition {name!r} on {system.name}; choose one of: {', '.join(system.partitions)}"
        )
    return system.partitions[name]


def _of_one_node(study: Study, system: System) -> Shape:
    num_cores = system.num_cores()
    ranks = sorted(set(study.ranks or default_ranks(num_cores)))
    return Shape(
        sizes=tuple(Size(1, count) for count in ranks),
        ranks_per_node=None,
        num_cores=num_cores,
        cores_per_rank=max(1, num_cores // ranks[-1]),
        threads_per_rank=max(1, num_cores // ranks[-1]),
    )


def _threads(system: System, per_node: int) -> int:
    """A number of threads that was found for one placement says nothing of another."""
    placement = system.placement
    if placement and per_node == placement.ranks_per_node and "OMP_NUM_THREADS" in placement.variables:
        return int(placement.variables["OMP_NUM_THREADS"])
    return system.num_cores() // per_node


def default_ranks(num_cores: int) -> list[int]:
    """Powers of two up to the cores, 3 among them as a size that is none (M6), and the cores themselves."""
    return sorted({*_with_another(_powers(num_cores)), num_cores})


def _default_nodes(most: int) -> list[int]:
    return _with_another(_powers(most))


def _powers(most: int) -> list[int]:
    return [1 << exponent for exponent in range(most.bit_length()) if 1 << exponent <= most]


def _with_another(powers: list[int]) -> list[int]:
    """And 3, where the powers go beyond it."""
    return sorted({*powers, 3}) if powers[-1] >= 4 else powers


def _ranks_per_node(study: Study, system: System) -> int:
    placement = system.placement
    per_node = study.ranks_per_node or (placement.ranks_per_node if placement else 1)
    if per_node > system.num_cores():
        raise UsageError(
            f"{per_node} ranks per node on {system.name}, whose nodes have {system.num_cores()} cores for them; "
            "ask for fewer"
        )
    return per_node


def tiers(sizes: Sequence[Size], policy: Policy) -> list[list[Size]]:
    """The sizes, ascending, cut as the policy says; sizes on equally many nodes stay together."""
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
            # A neighbour further away than the factor shares nothing that would be worth its price.
            cuts.append([last, count] if count <= last * policy.max_factor else [count])
    return cuts
