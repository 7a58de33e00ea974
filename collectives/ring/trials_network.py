"""The tuner's questions between nodes: which schedule for which size, and how long messages are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dlscale.collectives.ring.choice import best_overall, clearly_fastest, switch_points
from dlscale.collectives.ring.lockstep import Way
from dlscale.collectives.ring.plan import KIB, MIB, NO_LIMIT, NetworkPlan, Segment
from dlscale.collectives.ring.switches import engine_tuning
from dlscale.collectives.ring.trials import Trials, sizes, zeros

if TYPE_CHECKING:
    from dlscale.collectives.ring._engine import Engine

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
    return sizes(KIB, 4 * MIB, max_bytes=max_bytes)


def large_sizes(max_bytes: int) -> list[int]:
    """Messages that are cut."""
    return sizes(256 * KIB, 64 * MIB, max_bytes=max_bytes)


def num_questions(max_bytes: int) -> int:
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

        def prepared(size: int) -> dict[str, Way]:
            if engine is None:
                return dict.fromkeys(ways, Way())
            call = operation(engine, size)
            return {name: _way(engine, self.plan.model_copy(update=ways[name]), call) for name in ways}

        return self._trials.ask(question, asked, prepared, default=default)


def _way(engine: Engine, plan: NetworkPlan, call: Callable[[], None]) -> Way:
    tuning = engine_tuning(plan)
    return Way(prepare=lambda: engine.tune(tuning), call=call)


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
