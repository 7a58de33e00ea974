"""What ranks that share samples exchange in a step, in seconds: halos, sums of batch norm, and of means and products.

The calls are the workload's (`Workload.exchanges`). All replicas exchange at the same time, and a rank computes nothing
meanwhile. A rank between two others sends its rows one after the other, two latencies; of two ranks each has one
neighbour, and both send at once. Sums are allreduces of a replica's ranks, by the carrier's algorithm.

Consecutive ranks are on one node as far as it has places, so that a flow stays on a node or goes to another one:

    on a node       read and written in its memory, which its flows share, or over the link between two of its GPUs
    between nodes   the links of `loggp.cost`, with the network's latency

A message within a node has the latency of one between nodes: most of that is software, and no file states another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.exchange import NetworkExchange, Phase, phases_of
from dlscale.analysis.predict.loggp import Cost, fullest_link, memory_rate
from dlscale.analysis.predict.network import Network, Placement, Routing, allocated
from dlscale.models.parallel.exchanges import Call

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """`split` ranks per sample on so many full nodes."""

    split: int
    num_nodes: int
    ranks_per_node: int
    placement: Placement = "packed"
    routing: Routing = "adaptive"
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HaloSeconds:
    """(R, 1) seconds that ranks of one sample exchange in a step, on the way forward and back."""

    forward: Floats
    backward: Floats

    @property
    def total(self) -> Floats:
        """Of the step."""
        return np.asarray(self.forward + self.backward, dtype=np.float64)

    def until(self, moment: float, *, forward_seconds: float, backward_seconds: float) -> Floats:
        """Those before a moment of the undisturbed step, over which they are spread evenly each way."""
        ahead = min(1.0, moment / forward_seconds) if forward_seconds else 1.0
        length = backward_seconds - forward_seconds
        back = min(1.0, max(0.0, (moment - forward_seconds) / length)) if length > 0 else 1.0
        return np.asarray(ahead * self.forward + back * self.backward, dtype=np.float64)


def calls_cost(
    network: Network, replicas: Replicas, calls: Iterable[Call], *, algorithm: Callable[[int], str]
) -> tuple[float, float]:
    """(seconds of latencies, seconds of bytes) of these calls of a rank with two neighbours, free of noise.

    `algorithm` is that of a sum of so many bytes. Raises UsageError as `allocated` and `memory_rate`.
    """
    known: dict[str, Cost] = {}
    fixed, moved = 0.0, 0.0
    for name, num_bytes in _messages(calls, replicas.split, algorithm):
        if name not in known:
            known[name] = _cost(network, replicas, _phases(name, replicas.split))
        fixed += known[name].seconds
        moved += num_bytes * known[name].seconds_per_byte
    return fixed, moved


def calls_jitter(
    network: Network, split: int, calls: Iterable[Call], *, algorithm: Callable[[int], str]
) -> float:
    """Seconds that the jitter of messages adds: each phase waits for the latest message of the replica."""
    jitter = network.message_jitter_seconds or 0.0
    return jitter * sum(
        phase.num_steps * float(np.sum(1 / np.arange(1, phase.num_flows + 1)))
        for name, _ in _messages(calls, split, algorithm)
        for phase in _phases(name, split)
    )


ONE_WAY, BOTH_WAYS = "one way", "both ways"


def _messages(
    calls: Iterable[Call], split: int, algorithm: Callable[[int], str]
) -> Iterable[tuple[str, int]]:
    """What is sent, one after the other: rows one way, both ways at once, or a sum by an algorithm; and the bytes."""
    for call in calls:
        if call.operation == "sum":
            (num_bytes,) = call.num_bytes
            yield algorithm(num_bytes), num_bytes
        elif split == 2:
            yield BOTH_WAYS, max(call.num_bytes)
        else:
            yield from ((ONE_WAY, num_bytes) for num_bytes in call.num_bytes if num_bytes)


def _phases(name: str, split: int) -> Sequence[Phase]:
    """Between the ranks of one replica."""
    if name not in (ONE_WAY, BOTH_WAYS):
        return phases_of(NetworkExchange(algorithm=name, num_nodes=split))  # type: ignore[arg-type]
    above = np.arange(split - 1)
    down = Phase(sources=above, targets=above + 1, share=1.0, num_steps=1, added=0.0)
    if name == ONE_WAY:
        return [down]
    sources, targets = np.append(above, above + 1), np.append(above + 1, above)
    return [replace(down, sources=sources, targets=targets)]


def _cost(network: Network, replicas: Replicas, phases: Sequence[Phase]) -> Cost:
    places = allocated(network, replicas.num_nodes, replicas.placement, replicas.seed)
    first = np.arange(0, replicas.num_nodes * replicas.ranks_per_node, replicas.split)
    seconds, per_byte = 0.0, 0.0
    for phase in phases:
        sources, targets = (
            np.add.outer(first, ranks).ravel() // replicas.ranks_per_node
            for ranks in (phase.sources, phase.targets)
        )
        away = sources != targets
        longest, extra = 0.0, 0.0
        if not away.all():
            longest = _on_a_node(network, replicas, sources[~away]) * phase.share
        if away.any():
            between = replace(phase, sources=sources[away], targets=targets[away])
            on_links, crosses = fullest_link(network, between, places, minimal=replicas.routing == "minimal")
            longest = max(longest, on_links)
            extra = network.groups.extra_latency_seconds if network.groups and crosses else 0.0
        seconds += phase.num_steps * (network.latency_seconds + extra)
        per_byte += longest + phase.added * network.reduce_seconds_per_byte
    return Cost(seconds=seconds, seconds_per_byte=per_byte)


def _on_a_node(network: Network, replicas: Replicas, nodes: NDArray[np.int64]) -> float:
    """Seconds per byte of flows within these nodes: read and written in the memory that they share, or on own links."""
    if network.device_link_bytes_per_second:
        return 1 / network.device_link_bytes_per_second
    return 2 * int(np.bincount(nodes).max()) / memory_rate(network, replicas.ranks_per_node)
