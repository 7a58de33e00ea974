"""Finds the switch points of a machine by trying them, and writes them into a plan.

Every rank does the same trials in the same order (trials.py) and gets the same times, so all choose alike. Parts are
tried by themselves: the ranks of each node (from which size slices pay, how large messages move best), the network
between nodes (which schedule for which size, how long messages are), and blocks over both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpi4py import MPI
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.ring.engine import BLOCK_BYTES
from dlscale.collectives.ring.engine_tuning import default_network, engine_manners, engine_tuning, open_engine
from dlscale.collectives.ring.plan import (
    KIB,
    MIB,
    NO_LIMIT,
    Manner,
    NetworkPlan,
    NodePlan,
    PlanKey,
    Segment,
    TuningPlan,
    key_here,
    node_here,
    write_plan,
)
from dlscale.collectives.ring.trials import (
    Trials,
    Variant,
    best_overall,
    clearly_fastest,
    few_manners,
    switch_points,
    trial_sizes,
    zeros,
)

if TYPE_CHECKING:
    from dlscale.collectives.ring._engine import Engine


MOST_MANNERS = 4
ROOM_FOR_ONE_SHOT = 256 * KIB
NO_ONE_SHOT = 64  # what is smaller travels in the line of its counter anyway

_STYLES = {"": (False, False), ", ahead": (True, False), ", streaming": (False, True)}
MANNERS = {
    f"{chunk} KiB{style}": Manner(chunk_bytes=chunk * KIB, ahead=ahead, streaming=streaming)
    for chunk in (128, 256, 512, 1024, 2048)
    for style, (ahead, streaming) in _STYLES.items()
}
DEFAULT_MANNER = "512 KiB"


def manner_sizes(max_bytes: int) -> list[int]:
    """Messages that move in chunks."""
    return trial_sizes(256 * KIB, 64 * MIB, max_bytes=max_bytes)


def one_shot_sizes(max_bytes: int) -> list[int]:
    """Messages that may go at once."""
    return trial_sizes(KIB, ROOM_FOR_ONE_SHOT, max_bytes=max_bytes)


def tune_node(trials: Trials, node: Any, *, shared_memory: str, block_bytes: int) -> NodePlan:
    """The best inside the nodes, whose ranks are those of `node`, an mpi4py communicator of each; collective."""
    # Room for all that is tried.
    largest = NodePlan(
        one_shot_bytes=ROOM_FOR_ONE_SHOT, manners=[*MANNERS.values()][-1:], block_bytes=block_bytes
    )
    engine = open_engine(node, largest, default_network(1), ranks_per_node=0, shared_memory=shared_memory)
    manners = _manners(trials, engine)
    one_shot = _one_shot(trials, engine, manners[0] if manners else MANNERS[DEFAULT_MANNER])
    engine.close()
    return NodePlan(one_shot_bytes=one_shot, manners=manners, block_bytes=block_bytes)


def _manners(trials: Trials, engine: Engine) -> list[Manner]:
    def ways(size: int) -> dict[str, Variant]:
        buffer = zeros(size)
        return {name: _node_variant(engine, NO_ONE_SHOT, manner, buffer) for name, manner in MANNERS.items()}

    asked = manner_sizes(trials.max_bytes)
    table = trials.ask("large messages inside a node", asked, ways, default=lambda _: DEFAULT_MANNER)
    if not table:
        return []
    families = {name: manner.streaming for name, manner in MANNERS.items()}
    return [MANNERS[name] for name in few_manners(table, families, MOST_MANNERS)]


def _one_shot(trials: Trials, engine: Engine, manner: Manner) -> int:
    def ways(size: int) -> dict[str, Variant]:
        buffer = zeros(size)
        return {
            "one-shot": _node_variant(engine, ROOM_FOR_ONE_SHOT, manner, buffer),
            "slices": _node_variant(engine, NO_ONE_SHOT, manner, buffer),
        }

    asked = one_shot_sizes(trials.max_bytes)
    usual = min(max(128 * KIB // engine.size, 4 * KIB), 64 * KIB)  # as src/node/node.cpp
    table = trials.ask(
        "small messages inside a node",
        asked,
        ways,
        default=lambda size: "one-shot" if size <= usual else "slices",
    )
    # Where only smaller messages were tried, 0 leaves it to the engine.
    complete = max(table, default=0) >= ROOM_FOR_ONE_SHOT
    return max(switch_points(table, ["one-shot", "slices"], [0])[0], NO_ONE_SHOT) if complete else 0


def _node_variant(engine: Engine, one_shot_bytes: int, manner: Manner, buffer: Any) -> Variant:
    def prepare() -> None:
        engine.tune_node(one_shot_bytes, engine_manners([manner]))

    return Variant(prepare=prepare, call=lambda: engine.allreduce(buffer))


SEGMENTS = (32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, 1 * MIB)
WINDOWS = (2, 4, 8)

# The switch points that make each way serve every size.
ALLREDUCE = {
    "one-shot": {"one_shot_bytes": NO_LIMIT},
    "recursive doubling": {"one_shot_bytes": 0, "recursive_doubling_bytes": NO_LIMIT},
    "halving, doubling": {
        "one_shot_bytes": 0,
        "recursive_doubling_bytes": 0,
        "halving_doubling_bytes": NO_LIMIT,
    },
    "ring": {"one_shot_bytes": 0, "recursive_doubling_bytes": 0, "halving_doubling_bytes": 0},
}
REDUCE_SCATTER = {"direct": {"direct_bytes": NO_LIMIT}, "ring": {"direct_bytes": 0}}
BROADCAST = {"tree": {"tree_bytes": NO_LIMIT}, "chain": {"tree_bytes": 0}}

Operation = Callable[["Engine", int], Callable[[], None]]


def small_sizes(max_bytes: int) -> list[int]:
    """Messages between switch points."""
    return trial_sizes(KIB, 4 * MIB, max_bytes=max_bytes)


def large_sizes(max_bytes: int) -> list[int]:
    """Messages that are cut."""
    return trial_sizes(256 * KIB, 64 * MIB, max_bytes=max_bytes)


def num_network_questions(max_bytes: int) -> int:
    """Questions times sizes, at most."""
    return 3 * len(small_sizes(max_bytes)) + 3 * len(large_sizes(max_bytes))


class NetworkTrials:
    """Finds the best between nodes; collective. `engine` is None on a rank that sends nothing to other nodes."""

    def __init__(self, trials: Trials, engine: Engine | None, default: NetworkPlan) -> None:
        self._trials, self._engine = trials, engine
        self.plan = default

    def run(self) -> NetworkPlan:
        """All questions, each with the answers to those before."""
        limits = ["one_shot_bytes", "recursive_doubling_bytes", "halving_doubling_bytes"]
        self._switch("schedules between nodes", ALLREDUCE, _allreduce, limits)
        self._switch("reduce-scatter between nodes", REDUCE_SCATTER, _reduce_scatter, ["direct_bytes"])
        self._switch("broadcast between nodes", BROADCAST, _broadcast, ["tree_bytes"])
        self._segments()
        segments = {f"{length // KIB} KiB": length for length in SEGMENTS}
        self._one_of("messages of direct exchanges", "direct_segment_bytes", segments, _allreduce_in_order)
        windows = {f"{number} at a time": number for number in WINDOWS}
        self._one_of("messages under way", "window", windows, _allreduce)
        return self.plan

    def _switch(
        self,
        question: str,
        ways: Mapping[str, Mapping[str, int]],
        operation: Operation,
        limits: list[str],
    ) -> None:
        defaults = [getattr(self.plan, name) for name in limits]
        *first, last = ways

        def default(size: int) -> str:
            return next((way for way, limit in zip(first, defaults, strict=True) if size <= limit), last)

        asked = small_sizes(self._trials.max_bytes)
        table = self._ask(question, asked, ways, operation, default=default)
        if table:
            found = switch_points(table, list(ways), defaults)
            self.plan = self.plan.model_copy(update=dict(zip(limits, found, strict=True)))

    def _segments(self) -> None:
        ways = {
            f"{length // KIB} KiB": {"segments": [Segment(up_to_bytes=NO_LIMIT, segment_bytes=length)]}
            for length in SEGMENTS
        }
        asked = large_sizes(self._trials.max_bytes)
        usual = self.plan.segments

        def default(size: int) -> str:
            length = next(s.segment_bytes for s in usual if size <= s.up_to_bytes)
            return f"{length // KIB} KiB"

        table = self._ask("messages between nodes", asked, ways, _allreduce, default=default)
        segments: list[Segment] = []
        for size, seconds in sorted(table.items()):
            name = clearly_fastest(seconds, default(size))
            length = ways[name]["segments"][0].segment_bytes
            if segments and segments[-1].segment_bytes == length:
                segments.pop()
            segments.append(Segment(up_to_bytes=2 * size, segment_bytes=length))
        if segments:
            segments[-1] = segments[-1].model_copy(update={"up_to_bytes": NO_LIMIT})
            self.plan = self.plan.model_copy(update={"segments": segments})

    def _one_of(self, question: str, field: str, values: Mapping[str, int], operation: Operation) -> None:
        ways = {name: {field: value} for name, value in values.items()}
        default = next(name for name, value in values.items() if value == getattr(self.plan, field))
        asked = large_sizes(self._trials.max_bytes)
        table = self._ask(question, asked, ways, operation, default=lambda _: default)
        if table:
            best = best_overall(table, default)
            self.plan = self.plan.model_copy(update={field: values[best]})

    def _ask(
        self,
        question: str,
        asked: list[int],
        ways: Mapping[str, Mapping[str, Any]],
        operation: Operation,
        *,
        default: Callable[[int], str],
    ) -> dict[int, dict[str, float]]:
        engine = self._engine

        def prepared(size: int) -> dict[str, Variant]:
            if engine is None:
                return dict.fromkeys(ways, Variant())
            call = operation(engine, size)
            return {
                name: _network_variant(engine, self.plan.model_copy(update=ways[name]), call) for name in ways
            }

        return self._trials.ask(question, asked, prepared, default=default)


def _network_variant(engine: Engine, plan: NetworkPlan, call: Callable[[], None]) -> Variant:
    tuning = engine_tuning(plan)
    return Variant(prepare=lambda: engine.tune(tuning), call=call)


def _allreduce(engine: Engine, size: int) -> Callable[[], None]:
    buffer = zeros(size)
    return lambda: engine.allreduce(buffer)


def _allreduce_in_order(engine: Engine, size: int) -> Callable[[], None]:
    buffer = zeros(size, "float16")  # folded in order of rank, as all types that round
    return lambda: engine.allreduce(buffer)


def _reduce_scatter(engine: Engine, size: int) -> Callable[[], None]:
    count = max(size // 4 // engine.size, 1)
    whole, piece = zeros(4 * count * engine.size), zeros(4 * count)
    return lambda: engine.reduce_scatter(whole, piece)


def _broadcast(engine: Engine, size: int) -> Callable[[], None]:
    buffer = zeros(size)
    return lambda: engine.broadcast(buffer, 0)


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
) -> TuningPlan:
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
    plan = TuningPlan(key=key, node=node, network=network, timings=trials.timings)
    _write_result(plan, path, control)
    progress(total, total, "done")
    return plan


class _Groups:
    """The communicators of this rank's node and lane; `lane` is None on a rank that is on none."""

    def __init__(self, control: Any, key: PlanKey, *, ranks_per_node: int) -> None:
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


def _num_questions(key: PlanKey, max_bytes: int) -> int:
    total = 0
    if key.node_size > 1:
        total += len(manner_sizes(max_bytes)) + len(one_shot_sizes(max_bytes))
    if key.num_nodes > 1:
        total += num_network_questions(max_bytes)
        if key.node_size > 1:
            total += len(_block_sizes(max_bytes))
    return total


def _block_sizes(max_bytes: int) -> list[int]:
    return trial_sizes(4 * MIB, 64 * MIB, max_bytes=max_bytes)


def _tune_network(trials: Trials, lane: Any, network: NetworkPlan, node: NodePlan) -> NetworkPlan:
    engine = None
    if lane is not None:
        engine = open_engine(lane, node, network, ranks_per_node=1, shared_memory="auto")
    found = NetworkTrials(trials, engine, network).run()
    if engine is not None:
        engine.close()
    return found


def _tune_blocks(trials: Trials, engine: Engine, node: NodePlan) -> NodePlan:
    def way(block_bytes: int, buffer: NDArray[Any]) -> Variant:
        return Variant(
            prepare=lambda: engine.set_block_bytes(block_bytes), call=lambda: engine.allreduce(buffer)
        )

    def ways(size: int) -> dict[str, Variant]:
        buffer = zeros(size)
        return {name: way(block_bytes, buffer) for name, block_bytes in BLOCKS.items()}

    table = trials.ask("blocks", _block_sizes(trials.max_bytes), ways, default=lambda _: DEFAULT_BLOCK)
    if not table:
        return node
    return node.model_copy(update={"block_bytes": BLOCKS[best_overall(table, DEFAULT_BLOCK)]})


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
