"""The offline tuner: finds a machine's switch points by trying them, and writes them into a plan.

It asks four questions about allreduce: up to which size messages inside a node go at once, which schedule serves which
size between nodes, how long messages and blocks are. How large messages move inside a node is not asked: the online
tuner (src/node/online_tuner.hpp) finds that out while a program runs.

All ranks do the same trials in lockstep (trials.py) and get the same times, so all choose alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from dlscale.base.errors import UsageError
from dlscale.collectives.ring import _engine
from dlscale.collectives.ring.engine import BLOCK_BYTES
from dlscale.collectives.ring.pieces import piece_here
from dlscale.collectives.ring.plan import (
    KIB,
    MIB,
    NO_LIMIT,
    NetworkPlan,
    NodePlan,
    PlanKey,
    Segment,
    TuningPlan,
    default_network,
    key_here,
    write_plan,
)
from dlscale.collectives.ring.trials import (
    Trials,
    Variant,
    best_overall,
    clearly_fastest,
    switch_points,
    trial_sizes,
)

if TYPE_CHECKING:
    from dlscale.collectives.ring._engine import Engine

MIN_BYTES = KIB
ROOM_FOR_ONE_SHOT = 256 * KIB
NO_ONE_SHOT = 64  # smaller messages travel in the line of their counter anyway
PLAIN_COPY = (512 * KIB, False, False)  # while the one-shot limit is tried

LIMITS = ("one_shot_bytes", "recursive_doubling_bytes", "halving_doubling_bytes")
# The limits that make each schedule serve every size, in the order of the sizes that they suit.
SCHEDULES = {
    "one-shot": (NO_LIMIT, 0, 0),
    "recursive doubling": (0, NO_LIMIT, 0),
    "halving, doubling": (0, 0, NO_LIMIT),
    "ring": (0, 0, 0),
}
SEGMENTS = {f"{kib} KiB": kib * KIB for kib in (32, 64, 128, 256, 512, 1024)}
BLOCKS = {f"{mib} MiB": mib * MIB for mib in (1, 2, 4, 8, 16)}

Progress = Callable[[int, int, str], None]


def no_progress(_done: int, _total: int, _question: str) -> None:
    """Show nothing."""


def tune(
    control: Any,
    path: Path,
    *,
    max_bytes: int = 64 * MIB,
    seconds: float = 60.0,
    ranks_per_node: int = 0,
    shared_memory: str = "auto",
    progress: Progress = no_progress,
) -> TuningPlan:
    """Try for about `seconds` with messages up to `max_bytes`, and write the plan to `path`; collective.

    `ranks_per_node` and `shared_memory` as in `Settings`. `progress` gets the number of questions asked, of all
    questions, and the next question, on every rank. Raises UsageError on all ranks if the plan cannot be written.
    """
    if max_bytes < MIN_BYTES:
        raise UsageError(f"messages up to {max_bytes} bytes were asked for; give {MIN_BYTES} or more")
    here = piece_here(control, ranks_per_node=ranks_per_node)
    key = key_here(control, here)
    sizes = _sizes(key, max_bytes)
    total = max(sum(map(len, sizes.values())), 1)
    numbers = iter(range(total + 1))
    trials = Trials(
        control,
        seconds=seconds / total,
        announce=lambda question: progress(next(numbers), total, question),
    )
    node = NodePlan(one_shot_bytes=0, variants=[], block_bytes=BLOCK_BYTES)
    network = default_network(key.num_nodes)
    node_comm, lane_comm = _groups(control, key, here)
    # What is opened is closed where all goes well: closing is collective, and after a failure others never come.
    if key.node_size > 1:
        room = node.model_copy(update={"one_shot_bytes": ROOM_FOR_ONE_SHOT})
        engine = _open(node_comm, room, network, shared_memory=shared_memory)
        node = node.model_copy(update={"one_shot_bytes": _one_shot(trials, engine, sizes["one-shot"])})
        engine.close()
    if key.num_nodes > 1:
        lane = lane_comm and _open(lane_comm, node, network, piece=lane_comm.Get_rank())
        network = _schedules(trials, lane, network, sizes["schedules"])
        network = _segments(trials, lane, network, sizes["segments"])
        if lane:
            lane.close()
    if key.num_nodes > 1 and key.node_size > 1:
        engine = _open(control, node, network, piece=here[1], shared_memory=shared_memory)
        node = node.model_copy(update={"block_bytes": _blocks(trials, engine, sizes["blocks"])})
        engine.close()
    for comm in (node_comm, lane_comm):
        if comm:
            comm.Free()
    plan = TuningPlan(key=key, node=node, network=network, timings=trials.timings)
    _write_result(plan, path, control)
    progress(total, total, "done")
    return plan


def _sizes(key: PlanKey, max_bytes: int) -> dict[str, list[int]]:
    """The message sizes of every question; none where the question does not arise."""
    inside, between = key.node_size > 1, key.num_nodes > 1
    spans = {
        "one-shot": (inside, KIB, ROOM_FOR_ONE_SHOT),
        "schedules": (between, KIB, 4 * MIB),
        "segments": (between, 256 * KIB, 64 * MIB),
        "blocks": (inside and between, 4 * MIB, 64 * MIB),
    }
    return {
        question: trial_sizes(first, min(last, max_bytes)) if asked else []
        for question, (asked, first, last) in spans.items()
    }


def _groups(control: Any, key: PlanKey, here: tuple[int, int]) -> tuple[Any, Any]:
    """The communicators of this rank's node and of its lane; None for a rank that sends nothing to other nodes."""
    nodes = sorted(set(control.allgather(here)))
    node = control.Split(nodes.index(here), control.Get_rank())
    local = node.Get_rank()
    lane = control.Split(local if local < key.num_lanes else MPI.UNDEFINED, control.Get_rank())
    return node, None if lane == MPI.COMM_NULL else lane


def _open(
    comm: Any, node: NodePlan, network: NetworkPlan, *, piece: int = 0, shared_memory: str = "auto"
) -> Engine:
    return _engine.Engine(
        comm=comm.py2f(),
        network=network.engine_tuning(),
        timeout_seconds=300.0,
        shared_memory=shared_memory,
        one_shot_bytes=node.one_shot_bytes,
        variants=node.engine_variants(),
        block_bytes=node.block_bytes,
        piece=piece,
        debug=False,
        single_copy=False,
        huge_pages=True,
    )


def _one_shot(trials: Trials, engine: Engine, sizes: list[int]) -> int:
    """Up to which size messages inside a node go at once; 0 leaves it to the engine."""
    automatic = min(max(128 * KIB // engine.size, 4 * KIB), 64 * KIB)  # as src/node/node.cpp
    limits = {"one-shot": ROOM_FOR_ONE_SHOT, "slices": NO_ONE_SHOT}
    table = trials.ask(
        "small messages inside a node",
        sizes,
        {
            name: Variant(engine, partial(engine.tune_node, limit, [PLAIN_COPY]))
            for name, limit in limits.items()
        },
        default=lambda size: "one-shot" if size <= automatic else "slices",
    )
    if max(table, default=0) < ROOM_FOR_ONE_SHOT:
        return 0
    return max(switch_points(table, list(limits), [0])[0], NO_ONE_SHOT)


def _schedules(trials: Trials, lane: Engine | None, network: NetworkPlan, sizes: list[int]) -> NetworkPlan:
    """Which schedule serves which size between nodes."""
    *limited, last = SCHEDULES
    defaults = [getattr(network, name) for name in LIMITS]

    def default(size: int) -> str:
        return next((name for name, limit in zip(limited, defaults, strict=True) if size <= limit), last)

    plans = {
        name: network.model_copy(update=dict(zip(LIMITS, limits, strict=True)))
        for name, limits in SCHEDULES.items()
    }
    table = trials.ask("schedules between nodes", sizes, _between_nodes(lane, plans), default=default)
    if not table:
        return network
    points = switch_points(table, list(SCHEDULES), defaults)
    return network.model_copy(update=dict(zip(LIMITS, points, strict=True)))


def _segments(trials: Trials, lane: Engine | None, network: NetworkPlan, sizes: list[int]) -> NetworkPlan:
    """The length of messages between nodes, which may differ from size to size."""

    def default(size: int) -> str:
        return f"{next(s.segment_bytes for s in network.segments if size <= s.up_to_bytes) // KIB} KiB"

    plans = {
        name: network.model_copy(update={"segments": [Segment(up_to_bytes=NO_LIMIT, segment_bytes=length)]})
        for name, length in SEGMENTS.items()
    }
    table = trials.ask("messages between nodes", sizes, _between_nodes(lane, plans), default=default)
    segments: list[Segment] = []
    for size, seconds in sorted(table.items()):
        length = SEGMENTS[clearly_fastest(seconds, default(size))]
        if segments and segments[-1].segment_bytes == length:
            segments.pop()
        segments.append(Segment(up_to_bytes=2 * size, segment_bytes=length))
    if not segments:
        return network
    segments[-1] = segments[-1].model_copy(update={"up_to_bytes": NO_LIMIT})
    return network.model_copy(update={"segments": segments})


def _between_nodes(lane: Engine | None, plans: dict[str, NetworkPlan]) -> dict[str, Variant]:
    if lane is None:
        return dict.fromkeys(plans, Variant())
    return {name: Variant(lane, partial(lane.tune, plan.engine_tuning())) for name, plan in plans.items()}


def _blocks(trials: Trials, engine: Engine, sizes: list[int]) -> int:
    """The blocks in which buffers go through nodes and network by turns."""
    default = f"{BLOCK_BYTES // MIB} MiB"
    variants = {
        name: Variant(engine, partial(engine.set_block_bytes, length)) for name, length in BLOCKS.items()
    }
    table = trials.ask("blocks", sizes, variants, default=lambda _: default)
    return BLOCKS[best_overall(table, default)] if table else BLOCK_BYTES


def _write_result(plan: TuningPlan, path: Path, control: Any) -> None:
    error = None
    if control.Get_rank() == 0:
        try:
            write_plan(plan, path)
        except UsageError as caught:
            error = str(caught)
    error = control.bcast(error)
    if error:
        raise UsageError(error)
