"""The tuner's questions inside a node: from which size slices pay, and how large messages move best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlscale.collectives.ring.choice import few_manners, switch_points
from dlscale.collectives.ring.lockstep import Way
from dlscale.collectives.ring.plan import KIB, MIB, Manner, NodePlan
from dlscale.collectives.ring.switches import default_network, engine_manners, open_engine
from dlscale.collectives.ring.trials import Trials, sizes, zeros

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
    return sizes(256 * KIB, 64 * MIB, max_bytes=max_bytes)


def one_shot_sizes(max_bytes: int) -> list[int]:
    """Messages that may go at once."""
    return sizes(KIB, ROOM_FOR_ONE_SHOT, max_bytes=max_bytes)


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
    def ways(size: int) -> dict[str, Way]:
        buffer = zeros(size)
        return {name: _way(engine, NO_ONE_SHOT, manner, buffer) for name, manner in MANNERS.items()}

    asked = manner_sizes(trials.max_bytes)
    table = trials.ask("large messages inside a node", asked, ways, default=lambda _: DEFAULT_MANNER)
    if not table:
        return []
    families = {name: manner.streaming for name, manner in MANNERS.items()}
    return [MANNERS[name] for name in few_manners(table, families, MOST_MANNERS)]


def _one_shot(trials: Trials, engine: Engine, manner: Manner) -> int:
    def ways(size: int) -> dict[str, Way]:
        buffer = zeros(size)
        return {
            "one-shot": _way(engine, ROOM_FOR_ONE_SHOT, manner, buffer),
            "slices": _way(engine, NO_ONE_SHOT, manner, buffer),
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


def _way(engine: Engine, one_shot_bytes: int, manner: Manner, buffer: Any) -> Way:
    def prepare() -> None:
        engine.tune_node(one_shot_bytes, engine_manners([manner]))

    return Way(prepare=prepare, call=lambda: engine.allreduce(buffer))
