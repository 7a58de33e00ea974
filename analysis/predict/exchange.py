"""How long an exchange of gradients between nodes takes: closed forms in phases (LogGP without gaps), in NumPy.

In a phase all flows run at the same time, and the next one begins when all have ended. K messages in a row, of s n
bytes per flow and an added share a, take

    K (L + G) + n (max over links of (bytes of flows on it / n) / its rate + a g)

L is the latency of a message, G what one between groups has more, g the seconds to add a byte. Links are what a node
sends and receives, what leaves and enters a group, and with minimal routing what goes from one group to another: there
flows are counted, as no formula knows which of them share a link. Every exchange is affine in n (`cost`). The phases of
each algorithm, ranks that share a node: docs/prediction.md. Where N is no power of two, the surplus over the
last one, Q, is added before and gets the result after: of the first 2 (N - Q) nodes each odd one sends everything to
its left neighbour (as collectives/ring/src/network/doubling.cpp does).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.network import Network
from dlscale.base.errors import UsageError

# As records name it; the version is raised with every change of a number.
ENGINE, ENGINE_VERSION = "loggp", "3"

Nodes = NDArray[np.int64]
Placement = Literal["packed", "scattered"]
Routing = Literal["minimal", "adaptive"]
Algorithm = Literal["ring", "recursive_doubling", "halving_doubling", "parameter_servers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkExchange:
    """One kind of exchange: each node holds `ranks_per_node` ranks; `num_servers` is of parameter servers only.

    Servers are processes on further nodes, `ranks_per_node` of them on each.
    """

    algorithm: Algorithm
    num_nodes: int
    ranks_per_node: int = 1
    num_servers: int = 0
    placement: Placement = "packed"  # consecutive nodes, or drawn from all groups
    routing: Routing = "adaptive"  # a pair's direct links only, or all of its groups
    seed: int = 0  # of a scattered placement


class Phase(NamedTuple):
    """Flows between nodes 0 .. N - 1 (servers' nodes follow) that run at the same time.

    Flow f goes from `sources[f]` to `targets[f]`, or with `all_pairs` there is one from every source to every target.
    """

    sources: Nodes
    targets: Nodes
    share: float = 1.0  # of the message's bytes, that each flow carries
    added: float = 0.0  # share of the message's bytes, that a receiving process adds to its own
    num_steps: int = 1  # messages of a flow, each sent when the one before has arrived
    all_pairs: bool = False

    def back(self) -> Phase:
        """The same flows the other way, with nothing to add."""
        return self._replace(sources=self.targets, targets=self.sources, added=0.0)


class Cost(NamedTuple):
    """An exchange of n bytes takes `seconds` + n x `seconds_per_byte`."""

    seconds: float
    seconds_per_byte: float

    def of(self, num_bytes: int) -> float:
        """Seconds of an exchange of so many bytes."""
        return self.seconds + num_bytes * self.seconds_per_byte


@lru_cache(maxsize=4096)  # backends share algorithms
def cost(network: Network, exchange: NetworkExchange) -> Cost:
    """The exchange alone on the network, free of noise. Raises UsageError for more nodes than there are."""
    places = _allocated(network, exchange)
    seconds, per_byte = 0.0, _within_node(network, exchange.ranks_per_node)
    for phase in phases_of(exchange):
        fullest, crosses = fullest_link(network, phase, places, minimal=exchange.routing == "minimal")
        extra = network.groups.extra_latency_seconds if network.groups and crosses else 0.0
        seconds += phase.num_steps * (network.latency_seconds + extra)
        per_byte += fullest + phase.added * network.reduce_seconds_per_byte
    return Cost(seconds, per_byte)


def fullest_link(network: Network, phase: Phase, places: Nodes, *, minimal: bool) -> tuple[float, bool]:
    """(seconds per byte of the message on the link that takes longest, whether any flow leaves its group)."""
    sources, targets = places[phase.sources], places[phase.targets]
    of_each = (len(targets), len(sources)) if phase.all_pairs else (1, 1)
    busiest = max(np.bincount(sources).max() * of_each[0], np.bincount(targets).max() * of_each[1])
    longest = busiest * phase.share / network.node_bytes_per_second
    groups = network.groups
    if groups is None:
        return float(longest), False
    here, there = sources // groups.nodes_per_group, targets // groups.nodes_per_group
    count = int(max(here.max(), there.max())) + 1
    if phase.all_pairs:
        between = np.outer(np.bincount(here, minlength=count), np.bincount(there, minlength=count))
    else:
        between = np.bincount(here * count + there, minlength=count * count).reshape(count, count)
    between[np.diag_indices(count)] = 0
    leaving = max(between.sum(axis=0).max(), between.sum(axis=1).max())
    longest = max(longest, leaving * phase.share / groups.group_bytes_per_second)
    if minimal:
        longest = max(longest, between.max() * phase.share / groups.pair_bytes_per_second)
    return float(longest), bool(leaving)


def _allocated(network: Network, exchange: NetworkExchange) -> Nodes:
    """[count] the machine's numbers of the nodes that a job gets."""
    count = exchange.num_nodes + math.ceil(exchange.num_servers / exchange.ranks_per_node)
    if count > network.num_nodes:
        raise UsageError(
            f"{count} nodes, servers' nodes included, on {network.name}, which has {network.num_nodes}; "
            "give fewer --nodes or servers"
        )
    if exchange.placement == "packed":
        return np.arange(count)
    return np.random.default_rng(exchange.seed).choice(network.num_nodes, size=count, replace=False)


def _within_node(network: Network, ranks_per_node: int) -> float:
    """Seconds per byte of the message of an exchange within a node."""
    if ranks_per_node == 1:
        return 0.0
    if network.device_link_bytes_per_second:
        return 2 * (ranks_per_node - 1) / ranks_per_node / network.device_link_bytes_per_second
    if network.node_memory_bytes_per_second is None:
        raise UsageError(
            f"{network.name} states no node.memory_bandwidth, which {ranks_per_node} ranks per node need; add it to "
            "[node] of its file, with its source, or give --set ranks_per_node=1"
        )
    return 2 * ranks_per_node / network.node_memory_bytes_per_second


def phases_of(exchange: NetworkExchange) -> tuple[Phase, ...]:
    """The phases between nodes, in order; none where a single node has nobody to send to."""
    count = exchange.num_nodes
    if exchange.algorithm == "parameter_servers":
        return _parameter_servers(exchange)
    if count == 1:
        return ()
    if exchange.algorithm == "ring":
        nodes, once = np.arange(count), (count - 1) / count
        return (Phase(nodes, (nodes + 1) % count, 2 * once, once, 2 * (count - 1)),)
    return _doubling(count, halves=exchange.algorithm == "halving_doubling")


def _parameter_servers(exchange: NetworkExchange) -> tuple[Phase, ...]:
    num_servers, per_node = exchange.num_servers, exchange.ranks_per_node
    servers, share = exchange.num_nodes + np.arange(num_servers) // per_node, per_node / num_servers
    push = Phase(np.arange(exchange.num_nodes), servers, share, exchange.num_nodes * share, all_pairs=True)
    return push, push.back()


@lru_cache(maxsize=64)  # wherever the nodes lie
def _doubling(num_nodes: int, *, halves: bool) -> tuple[Phase, ...]:
    """Exchanges with partners at distance 1, 2, 4 ...: of everything, or of n/2, n/4 ... there and the same back."""
    surplus = num_nodes - (1 << (num_nodes.bit_length() - 1))
    guests = np.arange(1, 2 * surplus, 2)
    nodes = np.setdiff1d(np.arange(num_nodes), guests)
    bits = [1 << power for power in range((len(nodes) - 1).bit_length())]
    partners = [(bit, nodes[np.arange(len(nodes)) ^ bit]) for bit in bits]
    if halves:
        there = [Phase(nodes, others, 0.5 / bit, 0.5 / bit) for bit, others in partners]
        there += [phase.back() for phase in reversed(there)]
    else:
        there = [Phase(nodes, others, 1.0, 1.0) for _, others in partners]
    if not surplus:
        return tuple(there)
    before = Phase(guests, guests - 1, 1.0, 1.0)
    return before, *there, before.back()
