"""A machine's network as predictions see it: links of nodes and of groups of nodes, and a message's latency.

`network_of` reads it from a system's file, where every number has its source. What is computed here and stands in no
file: of a link of Ethernet TCP leaves 95.6 % for payload; adding a received byte moves three through memory (two read,
one written); a dragonfly's bisection counts both directions, so that each pair of G groups has B / 2 / (G / 2)^2 per
direction, and a group leaves by G - 1 pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.system import Devices, Fabric, System

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Groups of a dragonfly, or the pods of a fat tree: what a group and a pair of groups can carry, per direction."""

    num_groups: int
    nodes_per_group: int
    group_bytes_per_second: float  # all that leaves a group
    pair_bytes_per_second: float  # between one pair of groups, by direct links only
    extra_latency_seconds: float  # of a message between groups, beyond one within a group


Factors = tuple[float, float]
"""The lowest and the highest value that sources give, as factors on the one that is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Rates in bytes per second and direction, times in seconds."""

    name: str
    num_nodes: int
    node_bytes_per_second: float  # what a node injects
    latency_seconds: float  # of a small message between two processes, software included
    node_memory_bytes_per_second: float | None  # copies within a node; None: not known
    reduce_seconds_per_byte: float  # adding one received byte
    device_link_bytes_per_second: float | None = (
        None  # between a node's GPUs; None: its memory is between its ranks
    )
    groups: Groups | None = None  # None: nodes on one switch
    source: str = ""
    rate_factors: Factors = (1.0, 1.0)  # of all links
    latency_factors: Factors = (1.0, 1.0)
    # An exchange within a node, where it was measured: seconds, and seconds per byte. None: by memory or device links.
    within_node: tuple[float, float] | None = None
    # Mean of what a message takes longer, exponential; None: not measured, and predicted without.
    message_jitter_seconds: float | None = None


Placement = Literal["packed", "scattered"]  # consecutive nodes, or nodes drawn from all groups
Routing = Literal["minimal", "adaptive"]  # a pair's direct links only, or all links of its groups

BYTES_MOVED_TO_ADD = 3
# 1448 bytes of payload in a frame of 1514: 20 each are IP's and TCP's, 12 TCP's time stamps, 14 Ethernet's.
TCP_SHARE = 1448 / 1514
# An Aries router takes 100 ns; minimal routes have at most 2 hops within a group and 5 between groups (Cray XC Series
# Network, WP-Aries01-1112).
GROUP_LATENCY_SECONDS = 3 * 100e-9


def allocated(network: Network, count: int, placement: Placement, seed: int) -> NDArray[np.int64]:
    """[count] the machine's numbers of the nodes that a job gets. Raises UsageError if it has not so many."""
    if count > network.num_nodes:
        raise UsageError(
            f"{count} nodes, servers' nodes included, on {network.name}, which has {network.num_nodes}; "
            "give fewer --nodes or servers"
        )
    if placement == "packed":
        return np.arange(count)
    return np.random.default_rng(seed).choice(network.num_nodes, size=count, replace=False)


def network_of(system: System) -> Network:
    """The network of a system's file. Raises UsageError that names the key that it does not state."""
    fabric = system.fabric
    if fabric is None:
        raise UsageError(
            f"{system.name} states no [fabric], without which nothing can be predicted; add it to its file, with "
            "sources, or name a --system that has one"
        )
    if system.num_nodes is None:
        raise _missing(system, "num_nodes")
    bandwidth = _stated(system, "fabric.bandwidth", fabric.bandwidth)
    latency = _stated(system, "fabric.latency", fabric.latency)
    memory = _stated(system, "node.memory_bandwidth", system.node.memory_bandwidth)
    sources = {system.sources[fact.source]: None for fact in (bandwidth, latency, memory)}
    return Network(
        name=system.name,
        num_nodes=system.num_nodes.value,
        node_bytes_per_second=bandwidth.number * (TCP_SHARE if _by_tcp(fabric) else 1.0),
        latency_seconds=latency.number,
        node_memory_bytes_per_second=memory.number,
        reduce_seconds_per_byte=BYTES_MOVED_TO_ADD / memory.number,
        groups=_groups(system, fabric),
        source="; ".join(sources),
        rate_factors=bandwidth.factors,
        latency_factors=latency.factors,
    )


def between_gpus(network: Network, devices: Devices) -> Network:
    """The network of ranks that exchange from GPU to GPU, where the file states the links between a node's."""
    if devices.link is None:
        return network
    memory = devices.memory_bandwidth
    return replace(
        network,
        device_link_bytes_per_second=devices.link.number,
        reduce_seconds_per_byte=BYTES_MOVED_TO_ADD / memory.number
        if memory
        else network.reduce_seconds_per_byte,
    )


def _by_tcp(fabric: Fabric) -> bool:
    """Whether messages go by TCP: over Ethernet, unless its name says otherwise."""
    name = fabric.name.value.lower()
    return "tcp" in name or ("ethernet" in name and "roce" not in name and "rdma" not in name)


def _groups(system: System, fabric: Fabric) -> Groups | None:
    topology = fabric.topology.value if fabric.topology else ""
    if "dragonfly" not in topology and fabric.groups is None:
        return None
    count = _stated(system, "fabric.groups", fabric.groups).value
    size = _stated(system, "fabric.nodes_per_group", fabric.nodes_per_group).value
    bisection = _stated(system, "fabric.bisection", fabric.bisection).number
    pair = bisection / 2 / (count / 2) ** 2
    return Groups(
        num_groups=count,
        nodes_per_group=size,
        group_bytes_per_second=pair * (count - 1),
        pair_bytes_per_second=pair,
        extra_latency_seconds=GROUP_LATENCY_SECONDS,
    )


def _stated(system: System, key: str, fact: T | None) -> T:
    if fact is None:
        raise _missing(system, key)
    return fact


def _missing(system: System, key: str) -> UsageError:
    section = f" to [{key.rpartition('.')[0]}]" if "." in key else ""
    return UsageError(
        f"{system.name} states no {key}, which a prediction needs; add it{section} of its file, with its source, or "
        f"give dlscale predict --assume {key}=VALUE"
    )
