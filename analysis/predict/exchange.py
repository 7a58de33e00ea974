"""How long an exchange of gradients between nodes takes: closed forms in phases (LogGP without gaps), in NumPy.

In a phase all flows run at the same time, and the next one begins when all have ended. N nodes, a message of n bytes:

    ring                 2 (N - 1) steps to the right neighbour, 2 (N - 1) / N n in all
    two_level_ring       rings of R neighbours reduce and scatter, rings across them reduce, the first ones gather;
                         R is the divisor of N nearest to its square root
    recursive_doubling   log2 N exchanges of all n with the partner at distance 1, 2, 4 ...
    halving_doubling     log2 N exchanges of n/2, n/4 ... with the partner at distance 1, 2, 4 ..., and the same back
    tree                 a binomial tree to node 0, and back
    parameter_servers    every rank sends n / S to each of S servers, and gets as much back

Where N is no power of two, the surplus over the last one, Q, is added before and gets the result after: of the first
2 (N - Q) nodes each odd one sends everything to its left neighbour (as collectives/ring/src/network/doubling.cpp does).
A phase of K messages in a row, of s n bytes per flow and an added share a, takes

    K (L + G) + n (max over links of (bytes of flows on it / n) / its rate + a g)

L is the latency of a message, G what one between groups has more, g the seconds to add a byte. Links are what a node
sends and receives, what leaves and enters a group, and with minimal routing what goes from one group to another: there
flows are counted, as no formula knows which of them share a link. Every exchange is affine in n: two numbers (`cost`).
Ranks that share a node first sum their gradients in its memory: 2 r n / M seconds for r ranks, read once and written
once; or, from GPU to GPU, in a ring over their links of rate D: 2 (r - 1)/r n / D. Where a study has measured exchanges
within a node, these are taken.

Single messages are late by an exponential time J. The latest of F flows with K of them in a row each is late by the
largest of F draws from a gamma distribution of shape K (`late`), a quantile of which is a quantile of the gamma.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.network import Network
from dlscale.base.errors import UsageError

ENGINE, ENGINE_VERSION = (
    "loggp",
    "2",
)  # as records name it; the version is raised with every change of a number
# The quantile of the largest of many draws that is its mean, by Gumbel's distribution: exp(-exp(-Euler's constant)).
MEAN_QUANTILE = math.exp(-math.exp(-0.5772156649))

Nodes = NDArray[np.int64]
Placement = Literal["packed", "scattered"]
Routing = Literal["minimal", "adaptive"]
Algorithm = Literal[
    "ring", "two_level_ring", "recursive_doubling", "halving_doubling", "tree", "parameter_servers"
]


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

    @property
    def num_flows(self) -> int:
        """The number of flows."""
        return len(self.sources) * (len(self.targets) if self.all_pairs else 1)

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
    seconds, per_byte = _within_node(network, exchange.ranks_per_node)
    for phase in phases_of(exchange):
        fullest, crosses = fullest_link(network, phase, places, minimal=exchange.routing == "minimal")
        extra = network.groups.extra_latency_seconds if network.groups and crosses else 0.0
        seconds += phase.num_steps * (network.latency_seconds + extra)
        per_byte += fullest + phase.added * network.reduce_seconds_per_byte
    return Cost(seconds, per_byte)


def late(network: Network, exchange: NetworkExchange) -> float:
    """Mean seconds that the jitter of single messages adds to an exchange."""
    jitter = network.message_jitter_seconds
    return jitter * sum(_largest(phase, MEAN_QUANTILE) for phase in phases_of(exchange)) if jitter else 0.0


def late_units(exchange: NetworkExchange) -> tuple[float, float]:
    """Median and interquartile range of what a jitter of 1 s adds; those of phases add up by their squares."""
    mean, median, low, high = (
        np.array([_largest(phase, quantile) for phase in phases_of(exchange)])
        for quantile in (MEAN_QUANTILE, 0.5, 0.25, 0.75)
    )
    return float(mean.sum() - np.hypot.reduce(mean - median)), float(np.hypot.reduce(high - low))


def _largest(phase: Phase, quantile: float) -> float:
    """A quantile of the largest of a phase's flows, each a sum of exponentials with a mean of 1."""
    from scipy.special import gammainccinv  # takes longer to import than a prediction takes

    return float(gammainccinv(phase.num_steps, -math.expm1(math.log(quantile) / phase.num_flows)))


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


def _within_node(network: Network, ranks_per_node: int) -> tuple[float, float]:
    """Seconds, and per byte of the message, of an exchange within a node."""
    if ranks_per_node == 1:
        return 0.0, 0.0
    if network.within_node:
        return network.within_node
    if network.device_link_bytes_per_second:
        return 0.0, 2 * (ranks_per_node - 1) / ranks_per_node / network.device_link_bytes_per_second
    if network.node_memory_bytes_per_second is None:
        raise UsageError(
            f"{network.name} states no node.memory_bandwidth, which {ranks_per_node} ranks per node need; add it to "
            "[node] of its file, with its source, or give --set ranks_per_node=1"
        )
    return 0.0, 2 * ranks_per_node / network.node_memory_bytes_per_second


def phases_of(exchange: NetworkExchange) -> tuple[Phase, ...]:
    """The phases between nodes, in order; none where a single node has nobody to send to."""
    if exchange.algorithm == "parameter_servers":
        return _parameter_servers(exchange)
    return _ALGORITHMS[exchange.algorithm](exchange.num_nodes) if exchange.num_nodes > 1 else ()


def _ring(num_nodes: int) -> tuple[Phase, ...]:
    nodes, once = np.arange(num_nodes), (num_nodes - 1) / num_nodes
    return (Phase(nodes, (nodes + 1) % num_nodes, 2 * once, once, 2 * (num_nodes - 1)),)


def _two_level_ring(num_nodes: int) -> tuple[Phase, ...]:
    divisors = [d for d in range(1, num_nodes + 1) if num_nodes % d == 0]
    length = min(divisors, key=lambda d: (abs(math.log(d / math.sqrt(num_nodes))), d))
    rows = num_nodes // length
    if length == 1:
        return _ring(num_nodes)
    nodes = np.arange(num_nodes)
    right = nodes - nodes % length + (nodes + 1) % length
    once, across = (length - 1) / length, (rows - 1) / rows / length
    around = Phase(nodes, right, once, once, length - 1)
    return (
        around,
        Phase(nodes, (nodes + length) % num_nodes, 2 * across, across, 2 * (rows - 1)),
        around._replace(added=0.0),
    )


def _recursive_doubling(num_nodes: int) -> tuple[Phase, ...]:
    return _around_power_of_two(num_nodes, lambda _: [(1.0, 1.0)])


def _halving_doubling(num_nodes: int) -> tuple[Phase, ...]:
    return _around_power_of_two(num_nodes, lambda bit: [(0.5 / bit, 0.5 / bit), (0.5 / bit, 0.0)])


def _tree(num_nodes: int) -> tuple[Phase, ...]:
    nodes = np.arange(num_nodes)
    children = [(bit, nodes[nodes % (2 * bit) == bit]) for bit in _bits(num_nodes)]
    up = [Phase(own, own - bit, 1.0, 1.0) for bit, own in children]
    return (*up, *(phase.back() for phase in reversed(up)))


def _parameter_servers(exchange: NetworkExchange) -> tuple[Phase, ...]:
    num_servers, per_node = exchange.num_servers, exchange.ranks_per_node
    servers = exchange.num_nodes + np.arange(num_servers) // per_node
    share = per_node / num_servers
    push = Phase(np.arange(exchange.num_nodes), servers, share, exchange.num_nodes * share, all_pairs=True)
    return push, push.back()


def _bits(num_nodes: int) -> list[int]:
    """1, 2, 4 ... below `num_nodes`."""
    return [1 << k for k in range((num_nodes - 1).bit_length())]


def _around_power_of_two(
    num_nodes: int, shares_of: Callable[[int], list[tuple[float, float]]]
) -> tuple[Phase, ...]:
    """Exchanges of (share, added) with partners at each distance, of the nodes that a power of two leaves.

    The surplus is added before and served after.
    """
    surplus = num_nodes - (1 << (num_nodes.bit_length() - 1))
    guests = np.arange(1, 2 * surplus, 2)
    nodes = np.setdiff1d(np.arange(num_nodes), guests)
    there: list[Phase] = []
    back: list[Phase] = []
    for bit in _bits(len(nodes)):
        partners = nodes[np.arange(len(nodes)) ^ bit]
        first, *second = [Phase(nodes, partners, *shares) for shares in shares_of(bit)]
        there, back = [*there, first], [*second, *back]
    if surplus:
        before = Phase(guests, guests - 1, 1.0, 1.0)
        there, back = [before, *there], [*back, before.back()]
    return (*there, *back)


_ALGORITHMS: dict[str, Callable[[int], tuple[Phase, ...]]] = {
    "ring": _ring,
    "two_level_ring": _two_level_ring,
    "recursive_doubling": _recursive_doubling,
    "halving_doubling": _halving_doubling,
    "tree": _tree,
}
