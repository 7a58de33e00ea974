"""An exchange of gradients between nodes as phases: who sends at the same time, how much, in how many messages.

A phase ends when all its flows have ended, and the next one begins. In a ring every rank waits for the slowest within
P - 1 steps anyway; for trees and servers it is an approximation. N nodes, P ranks, a message of n bytes:

    ring                 2 (N - 1) steps to the right neighbour, 2 (N - 1) / N n in all
    two_level_ring       rings of R neighbours reduce and scatter, rings across them reduce, the first ones gather;
                         R is the divisor of N nearest to its square root
    recursive_doubling   log2 N exchanges of all n with the partner at distance 1, 2, 4 ...
    halving_doubling     log2 N exchanges of n/2, n/4 ... with the partner at distance 1, 2, 4 ..., and the same back
    tree                 a binomial tree to node 0, and back
    parameter_servers    every rank sends n / S to each of S servers, and gets as much back

Where N is no power of two, the surplus over the last one, Q, is added before and gets the result after: of the first
2 (N - Q) nodes each odd one sends everything to its left neighbour (as collectives/ring/src/network/doubling.cpp does).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.network import Placement, Routing

Nodes = NDArray[np.int64]

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
    placement: Placement = "packed"
    routing: Routing = "adaptive"
    seed: int = 0  # of a scattered placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Flows between nodes 0 .. N - 1 (servers' nodes follow) that run at the same time.

    Flow f goes from `sources[f]` to `targets[f]`, or with `all_pairs` there is one from every source to every target.
    """

    sources: Nodes
    targets: Nodes
    share: float  # of the message's bytes, that each flow carries
    num_steps: int  # messages of a flow, each sent when the one before has arrived
    added: float  # share of the message's bytes, that a receiving process adds to its own
    all_pairs: bool = False

    @property
    def num_flows(self) -> int:
        """The number of flows."""
        return len(self.sources) * (len(self.targets) if self.all_pairs else 1)


def num_places(exchange: NetworkExchange) -> int:
    """The number of nodes that an exchange occupies, those of servers included."""
    return exchange.num_nodes + math.ceil(exchange.num_servers / exchange.ranks_per_node)


def phases_of(exchange: NetworkExchange) -> tuple[Phase, ...]:
    """The phases between nodes, in order; none where a single node has nobody to send to."""
    if exchange.algorithm == "parameter_servers":
        return _parameter_servers(exchange)
    return _ALGORITHMS[exchange.algorithm](exchange.num_nodes) if exchange.num_nodes > 1 else ()


def row_length(num_nodes: int) -> int:
    """R of the two-level ring: the divisor of `num_nodes` nearest to its square root, the smaller of two."""
    root = math.sqrt(num_nodes)
    divisors = [d for d in range(1, num_nodes + 1) if num_nodes % d == 0]
    return min(divisors, key=lambda d: (abs(math.log(d / root)), d))


def _ring(num_nodes: int) -> tuple[Phase, ...]:
    nodes = np.arange(num_nodes)
    once = (num_nodes - 1) / num_nodes
    around = Phase(
        sources=nodes,
        targets=(nodes + 1) % num_nodes,
        share=2 * once,
        num_steps=2 * (num_nodes - 1),
        added=once,
    )
    return (around,)


def _two_level_ring(num_nodes: int) -> tuple[Phase, ...]:
    length = row_length(num_nodes)
    rows = num_nodes // length
    if length == 1 or rows == 1:
        return _ring(num_nodes)
    nodes = np.arange(num_nodes)
    right = nodes - nodes % length + (nodes + 1) % length
    once = (length - 1) / length
    gather = Phase(sources=nodes, targets=right, share=once, num_steps=length - 1, added=0.0)
    across = (rows - 1) / rows / length
    return (
        Phase(sources=nodes, targets=right, share=once, num_steps=length - 1, added=once),
        Phase(
            sources=nodes,
            targets=(nodes + length) % num_nodes,
            share=2 * across,
            num_steps=2 * (rows - 1),
            added=across,
        ),
        gather,
    )


def _recursive_doubling(num_nodes: int) -> tuple[Phase, ...]:
    def exchanges(nodes: Nodes) -> list[Phase]:
        return [_with_partner(nodes, bit, share=1.0, added=1.0) for bit in _bits(len(nodes))]

    return _around_power_of_two(num_nodes, exchanges)


def _halving_doubling(num_nodes: int) -> tuple[Phase, ...]:
    def exchanges(nodes: Nodes) -> list[Phase]:
        bits = _bits(len(nodes))
        halving = [_with_partner(nodes, bit, share=0.5 / bit, added=0.5 / bit) for bit in bits]
        return halving + [_with_partner(nodes, bit, share=0.5 / bit, added=0.0) for bit in reversed(bits)]

    return _around_power_of_two(num_nodes, exchanges)


def _tree(num_nodes: int) -> tuple[Phase, ...]:
    nodes = np.arange(num_nodes)
    up = []
    for bit in _bits(num_nodes):
        children = nodes[nodes % (2 * bit) == bit]
        up.append(Phase(sources=children, targets=children - bit, share=1.0, num_steps=1, added=1.0))
    return (*up, *(_back(phase) for phase in reversed(up)))


def _parameter_servers(exchange: NetworkExchange) -> tuple[Phase, ...]:
    num_servers, per_node = exchange.num_servers, exchange.ranks_per_node
    workers = np.arange(exchange.num_nodes)
    servers = exchange.num_nodes + np.arange(num_servers) // per_node
    push = Phase(
        sources=workers,
        targets=servers,
        share=per_node / num_servers,
        num_steps=1,
        added=exchange.num_nodes * per_node / num_servers,
        all_pairs=True,
    )
    return push, _back(push)


def _back(phase: Phase) -> Phase:
    """The same flows the other way, with nothing to add."""
    return Phase(
        sources=phase.targets,
        targets=phase.sources,
        share=phase.share,
        num_steps=phase.num_steps,
        added=0.0,
        all_pairs=phase.all_pairs,
    )


def _bits(num_nodes: int) -> list[int]:
    """1, 2, 4 ... below `num_nodes`."""
    return [1 << k for k in range((num_nodes - 1).bit_length())]


def _with_partner(nodes: Nodes, bit: int, *, share: float, added: float) -> Phase:
    partners = nodes[np.arange(len(nodes)) ^ bit]
    return Phase(sources=nodes, targets=partners, share=share, num_steps=1, added=added)


def _around_power_of_two(num_nodes: int, exchanges: Callable[[Nodes], list[Phase]]) -> tuple[Phase, ...]:
    """`exchanges` of the nodes that a power of two leaves, with the surplus added before and served after."""
    left = 1 << (num_nodes.bit_length() - 1)
    surplus = num_nodes - left
    nodes = np.arange(num_nodes)
    if not surplus:
        return tuple(exchanges(nodes))
    guests = np.arange(1, 2 * surplus, 2)
    before = Phase(sources=guests, targets=guests - 1, share=1.0, num_steps=1, added=1.0)
    return (before, *exchanges(np.setdiff1d(nodes, guests)), _back(before))


_ALGORITHMS: dict[str, Callable[[int], tuple[Phase, ...]]] = {
    "ring": _ring,
    "two_level_ring": _two_level_ring,
    "recursive_doubling": _recursive_doubling,
    "halving_doubling": _halving_doubling,
    "tree": _tree,
}
