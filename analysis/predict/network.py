"""A machine's network as predictions see it: links of nodes and of groups of nodes, and a message's latency.

`network_of` reads it from a system's file, where every number has its source, and `completed` gives a system the facts
that its file lacks: those of `COMPLETE`, each an assumption. Nothing that a file states is replaced, and the rate of
links is never another machine's. What is computed here and stands in no file: of a link of Ethernet TCP
leaves 95.6 % for payload; adding a received byte moves three through memory (two read, one written); a dragonfly's
bisection counts both directions, so that each pair of G groups has B / 2 / (G / 2)^2 per direction, and a group leaves
by G - 1 pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dlscale.base.errors import UsageError
from dlscale.base.quantities import Fact, Quantity
from dlscale.benchmarks.records.prediction import Origin
from dlscale.benchmarks.systems.system import Fabric, System, load_system

COMPLETE = "cori"  # the system of the catalogue with all facts of a network
ASSUMED = "assumed"  # a source that is none
FACTS = {
    "node.memory_bandwidth": "memory bandwidth of a node",
    "devices.link": "link between a node's GPUs",
    "fabric.bandwidth": "rate of a node's link",
    "fabric.latency": "latency of a message",
}
"""Keys of a system's file, as origins name them."""

BYTES_MOVED_TO_ADD = 3
# 1448 bytes of payload in a frame of 1514: 20 each are IP's and TCP's, 12 TCP's time stamps, 14 Ethernet's.
TCP_SHARE = 1448 / 1514
# An Aries router takes 100 ns; minimal routes have at most 2 hops within a group and 5 between groups (Cray XC Series
# Network, WP-Aries01-1112).
GROUP_LATENCY_SECONDS = 3 * 100e-9

Limits = tuple[float, float]
"""The least and the most that something can be."""


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
    """Rates in bytes per second and direction, times in seconds; factors are the sources' limits over the value."""

    name: str
    num_nodes: int
    node_bytes_per_second: float  # what a node injects
    latency_seconds: float  # of a small message between two processes, software included
    node_memory_bytes_per_second: float | None  # copies within a node; None: not known
    reduce_seconds_per_byte: float  # adding one received byte
    # Between a node's GPUs; None: its memory is between its ranks.
    device_link_bytes_per_second: float | None = None
    groups: Groups | None = None  # None: nodes on one switch
    rate_factors: Limits = (1.0, 1.0)  # of all links
    latency_factors: Limits = (1.0, 1.0)
    origins: tuple[Origin, ...] = ()


def input_of(what: str, value: str, kind: str, source: str) -> Origin:
    """Where an input of predictions comes from."""
    return Origin(input=what, value=value, kind=kind, source=source)


class Machine(NamedTuple):
    """A system with all that predictions need, and what of it stands in no file."""

    system: System
    assumed: tuple[Origin, ...] = ()


def completed(system: System) -> Machine:
    """The system with what its predictions lack, of another machine. Raises UsageError where too little is known."""
    changes: dict[str, Any] = {}
    fabric, node, model = system.fabric, system.node, load_system(COMPLETE)
    assumed: list[Origin] = []

    def taken(fact: Quantity, key: str) -> Quantity:
        source = f"as on {COMPLETE}; the file of {system.name} has none"
        assumed.append(input_of(FACTS[key], fact.text, ASSUMED, source))
        return fact.model_copy(update={"source": COMPLETE})

    if system.num_nodes is None and system.partitions:
        changes["num_nodes"] = max(
            (part.num_nodes for part in system.partitions.values()), key=lambda it: it.value
        )
    if node.memory_bandwidth is None and model.node.memory_bandwidth:
        memory = taken(model.node.memory_bandwidth, "node.memory_bandwidth")
        changes["node"] = node.model_copy(update={"memory_bandwidth": memory})
    if fabric:
        own: dict[str, Any] = {}
        if fabric.latency is None and model.fabric and model.fabric.latency:
            own["latency"] = taken(model.fabric.latency, "fabric.latency")
        grouped = fabric.groups is not None or _is_dragonfly(fabric)
        if grouped and not (fabric.groups and fabric.nodes_per_group and fabric.bisection):
            own |= {"topology": None, "groups": None}
            source = f"their links are not in the file of {system.name}"
            assumed.append(input_of("congestion between groups of nodes", "none", ASSUMED, source))
        changes["fabric"] = fabric.model_copy(update=own)
    changes["sources"] = system.sources | {COMPLETE: f"{ASSUMED}, as on {COMPLETE}"}
    machine = Machine(system.model_copy(update=changes), tuple(assumed))
    network_of(machine)
    return machine


def network_of(machine: Machine) -> Network:
    """The network of a system's file. Raises UsageError that names the key that it does not state."""
    system = machine.system
    if system.fabric is None:
        raise UsageError(
            f"{system.name} states no [fabric], without which nothing can be predicted; add it to its file, with "
            "sources, or name a --system that has one"
        )
    keys = ("fabric.bandwidth", "fabric.latency", "node.memory_bandwidth")
    num_nodes, *facts = (_stated(system, key) for key in ("num_nodes", *keys))
    rate, latency, memory = facts
    origins = [
        input_of(FACTS[key], fact.text, "stated", system.sources[fact.source])
        for key, fact in zip(keys, facts, strict=True)
        if fact.source != COMPLETE
    ]
    if _by_tcp(system.fabric):
        source = "1448 of 1514 bytes of a frame of Ethernet"
        origins.append(input_of("payload of TCP", f"{100 * TCP_SHARE:.1f} %", "derived", source))
    return Network(
        name=system.name,
        num_nodes=num_nodes.value,
        node_bytes_per_second=rate.number * (TCP_SHARE if _by_tcp(system.fabric) else 1.0),
        latency_seconds=latency.number,
        node_memory_bytes_per_second=memory.number,
        reduce_seconds_per_byte=BYTES_MOVED_TO_ADD / memory.number,
        groups=_groups(system),
        rate_factors=rate.factors,
        latency_factors=latency.factors,
        origins=(*origins, *machine.assumed),
    )


def between_gpus(network: Network, system: System) -> Network:
    """The network of ranks that exchange from GPU to GPU, where the file states the links between a node's."""
    devices = system.devices
    if devices is None or devices.link is None:
        return network
    memory, link = devices.memory_bandwidth, devices.link
    source = system.sources[link.source]
    return replace(
        network,
        device_link_bytes_per_second=link.number,
        reduce_seconds_per_byte=BYTES_MOVED_TO_ADD / memory.number
        if memory
        else network.reduce_seconds_per_byte,
        origins=(*network.origins, input_of(FACTS["devices.link"], link.text, "stated", source)),
    )


def _by_tcp(fabric: Fabric) -> bool:
    """Whether messages go by TCP: over Ethernet, unless its name says otherwise."""
    name = fabric.name.value.lower()
    return "tcp" in name or ("ethernet" in name and "roce" not in name and "rdma" not in name)


def _is_dragonfly(fabric: Fabric) -> bool:
    return "dragonfly" in (fabric.topology.value if fabric.topology else "")


def _groups(system: System) -> Groups | None:
    fabric = system.fabric
    if fabric is None or not (_is_dragonfly(fabric) or fabric.groups):
        return None
    count, size, bisection = (
        _stated(system, f"fabric.{name}") for name in ("groups", "nodes_per_group", "bisection")
    )
    pair = bisection.number / 2 / (count.value / 2) ** 2
    return Groups(
        num_groups=count.value,
        nodes_per_group=size.value,
        group_bytes_per_second=pair * (count.value - 1),
        pair_bytes_per_second=pair,
        extra_latency_seconds=GROUP_LATENCY_SECONDS,
    )


def _stated(system: System, key: str) -> Any:
    section, _, name = key.rpartition(".")
    fact: Fact | None = getattr(getattr(system, section) if section else system, name)
    if fact is None:
        raise UsageError(
            f"{system.name} states no {key}, which a prediction needs; add it{f' to [{section}]' * bool(section)} of "
            "its file, with its source"
        )
    return fact
