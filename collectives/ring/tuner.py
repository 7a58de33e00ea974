"""Finds the switch points of a machine by trying them, and writes them into a plan.

Every rank does the same trials in the same order (lockstep.py) and gets the same times, so all choose alike. Parts
are tried by themselves: the ranks of each node, all nodes at once; then the ranks of each lane between nodes; then
blocks, which go through both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpi4py import MPI
from numpy.typing import NDArray

from dlscale.collectives.ring.choice import best_overall
from dlscale.collectives.ring.engine import BLOCK_BYTES
from dlscale.collectives.ring.lockstep import Way
from dlscale.collectives.ring.plan import (
    KIB,
    MIB,
    Key,
    NetworkPlan,
    NodePlan,
    Plan,
    key_here,
    node_here,
    write_plan,
)
from dlscale.collectives.ring.switches import default_network, open_engine
from dlscale.collectives.ring.trials import Trials, sizes, zeros
from dlscale.collectives.ring.trials_network import NetworkTrials, num_questions
from dlscale.collectives.ring.trials_node import manner_sizes, one_shot_sizes, tune_node
from dlscale.models.errors import UsageError

if TYPE_CHECKING:
    from dlscale.collectives.ring._engine import Engine

BLOCKS = {f"{mib} MiB": mib * MIB for mib in (1, 2, 4, 8, 16)}
DEFAULT_BLOCK = f"{BLOCK_BYTES // MIB} MiB"
MIN_BYTES = KIB

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
) -> Plan:
    """Try for about `seconds` with messages up to `max_bytes`, and let `path` hold the plan; collective.

    `ranks_per_node` and `shared_memory` as in `Settings`. `progress` gets how many questions of how many were asked,
    and the next one, on every rank. Raises UsageError on all ranks if the plan cannot be written.
    """
    if max_bytes < MIN_BYTES:
        raise UsageError(f"messages up to {max_bytes} bytes were asked for; give {MIN_BYTES} or more")
    key = key_here(control, ranks_per_node=ranks_per_node)
    total = max(_num_questions(key, max_bytes), 1)
    asked = iter(range(total + 1))
    trials = Trials(
        control,
        max_bytes=max_bytes,
        seconds=seconds / total,
        tell=lambda question: progress(next(asked), total, question),
    )
    groups = _Groups(control, key, ranks_per_node=ranks_per_node)
    node = plain = NodePlan(one_shot_bytes=0, manners=[], block_bytes=BLOCK_BYTES)
    network = default_network(key.num_nodes)
    # What is opened is closed where all goes well: closing is collective, and after a failure others never come.
    if key.node_size > 1:
        node = tune_node(trials, groups.node, shared_memory=shared_memory, block_bytes=BLOCK_BYTES)
    if key.num_nodes > 1:
        network = _tune_network(trials, groups.lane, network, plain)
    if key.num_nodes > 1 and key.node_size > 1:
        engine = open_engine(
            control, node, network, ranks_per_node=ranks_per_node, shared_memory=shared_memory
        )
        node = _tune_blocks(trials, engine, node)
        engine.close()
    groups.free()
    plan = Plan(key=key, node=node, network=network, timings=trials.timings)
    _write(plan, path, control)
    progress(total, total, "done")
    return plan


class _Groups:
    """The communicators of this rank's node and lane; `lane` is None on a rank that is on none."""

    def __init__(self, control: Any, key: Key, *, ranks_per_node: int) -> None:
        # A node is known by its first rank, and by its place among the pieces of that rank's machine.
        first, place = node_here(control, ranks_per_node=ranks_per_node)
        nodes = sorted(set(control.allgather((first, place))))
        self.node = control.Split(nodes.index((first, place)), control.Get_rank())
        local = self.node.Get_rank()
        lane = control.Split(local if local < key.num_lanes else MPI.UNDEFINED, control.Get_rank())
        self.lane = None if lane == MPI.COMM_NULL else lane

    def free(self) -> None:
        self.node.Free()
        if self.lane is not None:
            self.lane.Free()


def _num_questions(key: Key, max_bytes: int) -> int:
    total = 0
    if key.node_size > 1:
        total += len(manner_sizes(max_bytes)) + len(one_shot_sizes(max_bytes))
    if key.num_nodes > 1:
        total += num_questions(max_bytes)
        if key.node_size > 1:
            total += len(_block_sizes(max_bytes))
    return total


def _block_sizes(max_bytes: int) -> list[int]:
    return sizes(4 * MIB, 64 * MIB, max_bytes=max_bytes)


def _tune_network(trials: Trials, lane: Any, network: NetworkPlan, node: NodePlan) -> NetworkPlan:
    engine = None
    if lane is not None:
        engine = open_engine(lane, node, network, ranks_per_node=1, shared_memory="auto")
    found = NetworkTrials(trials, engine, network).run()
    if engine is not None:
        engine.close()
    return found


def _tune_blocks(trials: Trials, engine: Engine, node: NodePlan) -> NodePlan:
    def way(block_bytes: int, buffer: NDArray[Any]) -> Way:
        return Way(prepare=lambda: engine.set_block_bytes(block_bytes), call=lambda: engine.allreduce(buffer))

    def ways(size: int) -> dict[str, Way]:
        buffer = zeros(size)
        return {name: way(block_bytes, buffer) for name, block_bytes in BLOCKS.items()}

    table = trials.ask("blocks", _block_sizes(trials.max_bytes), ways, default=lambda _: DEFAULT_BLOCK)
    if not table:
        return node
    return node.model_copy(update={"block_bytes": BLOCKS[best_overall(table, DEFAULT_BLOCK)]})


def _write(plan: Plan, path: Path, control: Any) -> None:
    error = None
    if control.Get_rank() == 0:
        try:
            write_plan(plan, path)
        except UsageError as caught:
            error = str(caught)
    error = control.bcast(error)
    if error:
        raise UsageError(error)
