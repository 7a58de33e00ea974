"""A tuning plan's numbers in the engine's own form, and engines opened with them."""

from __future__ import annotations

from typing import Any

from dlscale.collectives.ring import _engine
from dlscale.collectives.ring.plan import Manner, NetworkPlan, NodePlan, Segment

EngineManner = tuple[int, bool, bool]


def engine_manners(manners: list[Manner]) -> list[EngineManner]:
    """As the engine takes them."""
    return [(manner.chunk_bytes, manner.ahead, manner.streaming) for manner in manners]


def engine_tuning(network: NetworkPlan) -> _engine.NetworkTuning:
    """As the engine takes it."""
    return _engine.NetworkTuning(
        one_shot_bytes=network.one_shot_bytes,
        recursive_doubling_bytes=network.recursive_doubling_bytes,
        halving_doubling_bytes=network.halving_doubling_bytes,
        direct_bytes=network.direct_bytes,
        tree_bytes=network.tree_bytes,
        segments=[(segment.up_to_bytes, segment.segment_bytes) for segment in network.segments],
        direct_segment_bytes=network.direct_segment_bytes,
        window=network.window,
    )


def default_network(num_nodes: int) -> NetworkPlan:
    """The engine's own switch points between so many nodes."""
    tuning = _engine.default_tuning(num_nodes)
    *segments, (_, last) = tuning.segments
    return NetworkPlan(
        one_shot_bytes=tuning.one_shot_bytes,
        recursive_doubling_bytes=tuning.recursive_doubling_bytes,
        halving_doubling_bytes=tuning.halving_doubling_bytes,
        direct_bytes=tuning.direct_bytes,
        tree_bytes=tuning.tree_bytes,
        segments=[
            *(Segment(up_to_bytes=limit, segment_bytes=length) for limit, length in segments),
            Segment(up_to_bytes=2**63, segment_bytes=last),
        ],
        direct_segment_bytes=tuning.direct_segment_bytes,
        window=tuning.window,
    )


def open_engine(
    comm: Any, node: NodePlan, network: NetworkPlan, *, ranks_per_node: int, shared_memory: str
) -> _engine.Engine:
    """An engine of its own over the ranks of `comm`, an mpi4py communicator; collective."""
    return _engine.Engine(
        comm=comm.py2f(),
        network=engine_tuning(network),
        timeout_seconds=300.0,
        shared_memory=shared_memory,
        one_shot_bytes=node.one_shot_bytes,
        manners=engine_manners(node.manners),
        block_bytes=node.block_bytes,
        ranks_per_node=ranks_per_node,
        debug=False,
    )
