"""How long an exchange takes: latency and bottleneck of each phase (LogGP without gaps between messages), in NumPy.

A phase of K messages in a row, of s n bytes per flow and an added share a, takes

    K (L + G) + n (max over links of (bytes of flows on it / n) / its rate + a g)

L is the latency of a message, G what one between groups has more, g the seconds to add a byte. Links are what a node
sends and receives, what leaves and enters a group, and with minimal routing what goes from one group to another.
All flows of a phase end together, so shares of a link change nothing: the fullest link decides. So the time is affine
in n, and a whole exchange is two numbers (`cost`). Ranks that share a node first sum their gradients in its memory:
2 r n / M seconds for r ranks, read once and written once; or, from GPU to GPU, in a ring over
their links of rate D: 2 (r - 1)/r n / D. Where a study has measured exchanges within a node, these are taken.

What a formula cannot see is the jitter of single messages, which later ones wait for: `ring_seconds` follows every
message of a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.exchange import NetworkExchange, Nodes, Phase, num_places, phases_of
from dlscale.analysis.predict.network import Network, allocated
from dlscale.base.errors import UsageError

ENGINE = "loggp"  # as records name it
ENGINE_VERSION = "1"  # to be raised with every change of a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """An exchange of n bytes takes `seconds` + n x `seconds_per_byte`."""

    seconds: float
    seconds_per_byte: float

    def of(self, num_bytes: int) -> float:
        """Seconds of an exchange of so many bytes."""
        return self.seconds + num_bytes * self.seconds_per_byte


@lru_cache(maxsize=4096)  # backends share algorithms
def cost(network: Network, exchange: NetworkExchange) -> Cost:
    """The exchange alone on the network, free of noise. Raises UsageError as `allocated`."""
    phases = phases_of(exchange)
    places = allocated(network, num_places(exchange), exchange.placement, exchange.seed)
    seconds, per_byte = _within_node(network, exchange.ranks_per_node)
    for phase in phases:
        fullest, crosses = fullest_link(network, phase, places, minimal=exchange.routing == "minimal")
        extra = network.groups.extra_latency_seconds if network.groups and crosses else 0.0
        seconds += phase.num_steps * (network.latency_seconds + extra)
        per_byte += fullest + phase.added * network.reduce_seconds_per_byte
    return Cost(seconds=seconds, seconds_per_byte=per_byte)


def _within_node(network: Network, ranks_per_node: int) -> tuple[float, float]:
    """Seconds, and per byte of the message, of an exchange within a node. Raises UsageError if they are not known."""
    if ranks_per_node == 1:
        return 0.0, 0.0
    if network.within_node:
        return network.within_node
    if network.device_link_bytes_per_second:
        return 0.0, 2 * (ranks_per_node - 1) / ranks_per_node / network.device_link_bytes_per_second
    return 0.0, 2 * ranks_per_node / memory_rate(network, ranks_per_node)


def memory_rate(network: Network, ranks_per_node: int) -> float:
    """Bytes per second of a node's memory, which that many ranks share. Raises UsageError if it is not known."""
    if network.node_memory_bytes_per_second is None:
        raise UsageError(
            f"{network.name} states no node.memory_bandwidth, which {ranks_per_node} ranks per node need; add it to "
            "[node] of its file, with its source, or give --set ranks_per_node=1"
        )
    return network.node_memory_bytes_per_second


def fullest_link(network: Network, phase: Phase, places: Nodes, *, minimal: bool) -> tuple[float, bool]:
    """(seconds per byte of the message on the link that takes longest, whether any flow leaves its group)."""
    sources, targets = places[phase.sources], places[phase.targets]
    of_each = (len(targets), len(sources)) if phase.all_pairs else (1, 1)
    busiest = max(_most(sources) * of_each[0], _most(targets) * of_each[1])
    longest = busiest * phase.share / network.node_bytes_per_second
    groups = network.groups
    if groups is None:
        return longest, False
    between = _between_groups(
        sources // groups.nodes_per_group, targets // groups.nodes_per_group, all_pairs=phase.all_pairs
    )
    np.fill_diagonal(between, 0)
    leaving = max(between.sum(axis=0).max(), between.sum(axis=1).max())
    longest = max(longest, leaving * phase.share / groups.group_bytes_per_second)
    if minimal:
        longest = max(longest, between.max() * phase.share / groups.pair_bytes_per_second)
    return float(longest), bool(leaving)


def _between_groups(sources: Nodes, targets: Nodes, *, all_pairs: bool) -> NDArray[np.float64]:
    """[from][to], the number of flows between groups."""
    count = int(max(sources.max(), targets.max())) + 1
    if all_pairs:
        return np.outer(*(np.bincount(ends, minlength=count) for ends in (sources, targets))).astype(
            np.float64
        )
    flat = np.bincount(sources * count + targets, minlength=count * count)
    return flat.reshape(count, count).astype(np.float64)


def _most(nodes: Nodes) -> int:
    return int(np.bincount(nodes).max())


def ring_seconds(
    num_nodes: int,
    *,
    message_seconds: float,
    own_seconds: float,
    jitter_seconds: float,
    rng: np.random.Generator,
    num_draws: int = 1,
) -> NDArray[np.float64]:
    """[draws][N] seconds after which each node has ended a ring of 2 (N - 1) steps with exponential jitter of messages.

    A message takes `message_seconds` and the jitter from its sender's last step on; a node is busy for `own_seconds`
    with each step of its own.
    """
    ends = np.zeros((num_draws, num_nodes))
    arrivals = np.empty_like(ends)
    for _ in range(2 * (num_nodes - 1)):
        arrivals[:, 1:], arrivals[:, 0] = ends[:, :-1], ends[:, -1]
        arrivals += message_seconds
        if jitter_seconds:
            arrivals += rng.exponential(jitter_seconds, arrivals.shape)
        np.maximum(arrivals, ends + own_seconds, out=ends)
    return ends


def mean_jitter(
    network: Network, exchange: NetworkExchange, *, num_bytes: int, rng: np.random.Generator
) -> float:
    """Seconds that the jitter of single messages adds to an exchange.

    A ring's messages are followed one by one; where all flows of a phase send one message, the phase waits for the
    latest of them.
    """
    jitter = network.message_jitter_seconds
    if not jitter:
        return 0.0
    seconds = 0.0
    for phase in phases_of(exchange):
        if phase.num_steps == 1:
            seconds += jitter * float(np.sum(1 / np.arange(1, phase.num_flows + 1)))
        else:
            seconds += float(_added_to_ring(network, exchange, phase, num_bytes=num_bytes, rng=rng)[0])
    return seconds


def drawn_jitter(
    network: Network, exchange: NetworkExchange, *, num_bytes: int, rng: np.random.Generator, num_draws: int
) -> NDArray[np.float64]:
    """[draws] seconds that the jitter of single messages adds to an exchange, which `mean_jitter` has the mean of."""
    jitter = network.message_jitter_seconds or 0.0
    seconds = np.zeros(num_draws)
    for phase in phases_of(exchange):
        if phase.num_steps == 1:
            seconds -= jitter * np.log1p(-(rng.random(num_draws) ** (1 / phase.num_flows)))
        else:
            seconds += _added_to_ring(
                network, exchange, phase, num_bytes=num_bytes, rng=rng, num_draws=num_draws
            )
    return seconds


def _added_to_ring(
    network: Network,
    exchange: NetworkExchange,
    phase: Phase,
    *,
    num_bytes: int,
    rng: np.random.Generator,
    num_draws: int = 1,
) -> NDArray[np.float64]:
    """[draws] seconds that jitter adds to a phase of a ring or of rings in rows, which go around once or half."""
    num_nodes = phase.num_steps // 2 + 1 if exchange.algorithm == "ring" else phase.num_steps + 1
    own = phase.share / phase.num_steps * num_bytes / network.node_bytes_per_second
    ends = ring_seconds(
        num_nodes,
        message_seconds=network.latency_seconds + own,
        own_seconds=own,
        jitter_seconds=network.message_jitter_seconds or 0.0,
        rng=rng,
        num_draws=num_draws,
    )
    num_steps = 2 * (num_nodes - 1)
    quiet = num_steps * (network.latency_seconds + own)
    return np.asarray((ends.max(axis=1) - quiet) * phase.num_steps / num_steps, dtype=np.float64)
