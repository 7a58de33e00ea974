"""A machine's network as the engines see it: links of nodes and of groups of nodes, and a message's latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Groups of a dragonfly, or the pods of a fat tree: what a group and a pair of groups can carry, per direction."""

    num_groups: int
    nodes_per_group: int
    group_bytes_per_second: float  # all that leaves a group
    pair_bytes_per_second: float  # between one pair of groups, by direct links only
    extra_latency_seconds: float  # of a message between groups, beyond one within a group


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Rates in bytes per second and direction, times in seconds."""

    name: str
    num_nodes: int
    node_bytes_per_second: float  # what a node injects
    latency_seconds: float  # of a small message between two processes, software included
    node_memory_bytes_per_second: float | None  # copies within a node; None: not known
    reduce_seconds_per_byte: float  # adding one received byte
    groups: Groups | None = None  # None: nodes on one switch
    source: str = ""


Placement = Literal["packed", "scattered"]  # consecutive nodes, or nodes drawn from all groups
Routing = Literal["minimal", "adaptive"]  # a pair's direct links only, or all links of its groups
