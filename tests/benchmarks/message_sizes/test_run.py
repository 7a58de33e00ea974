"""Which launches a run consists of, how they share its budget, and which settings are chosen."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dlscale.benchmarks.message_sizes import run as message_sizes_run
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting
from dlscale.benchmarks.message_sizes.run import Run
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, Samples, load_run

from .conftest import machine_of

KIB, MIB = 2**10, 2**20


def settings(*names: str) -> list[PeerSetting]:
    return [PeerSetting(name=name) for name in names]


PEERS = [
    Peer(name="ring", title="ring", kind="ring", settings=settings("default")),
    Peer(name="mpich", title="MPICH", kind="mpi", settings=settings("default", "a")),
    Peer(name="horovod", title="Horovod", kind="torch", rests=False, settings=settings("default")),
]


class MadeRun:
    """A run whose launches take the seconds that are said, on a clock of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
        self.now = 1000.0
        self.start_seconds, self.seconds_of = 1.0, lambda seconds: seconds
        self.groups: list[list[MessageSizeLaunch]] = []
        self.told: list[str] = []
        self.shown: list[str] = []
        monkeypatch.setattr(message_sizes_run.launch, "run_together", self.run_together)
        monkeypatch.setattr(message_sizes_run, "other_load", str)
        asked: dict[str, Any] = {
            "machine": machine_of(*PEERS),
            "sizes": (4 * KIB, MIB),
            "rank_counts": (2,),
            "num_blocks": 3,
            "budget_seconds": 480,
        }
        self.run = Run(
            **(asked | changed), tell=self.told.append, progress=self.shown.append, clock=lambda: self.now
        )
        self.run.prepare(folder)
        self.launches: list[MessageSizeLaunch] = []

    def run_together(
        self, orders: Sequence[MessageSizeLaunch], *_: object, seconds: float, **__: object
    ) -> list[MessageSizeLaunch]:
        """As the real one: `seconds` with starting them, but at least half a second each."""
        self.groups.append(list(orders))
        self.now += max(seconds, len(orders) * (self.start_seconds + 0.5))
        return [order.model_copy(update={"samples": self.samples(order)}) for order in orders]

    def samples(self, order: MessageSizeLaunch) -> list[Samples]:
        return [sample(size, 1000) for size in (4 * KIB, MIB)] if order.num_ranks == 2 else []

    def measure(self) -> list[MessageSizeLaunch]:
        self.run.measure()
        _, self.launches = load_run(self.run.folder)
        return self.launches


def sample(message_bytes: int, nanoseconds: int) -> Samples:
    """A rank of each call takes 1 ns less."""
    return Samples(
        operation="mpi",
        message_bytes=message_bytes,
        round=0,
        num_warmup=5,
        nanoseconds=[[nanoseconds - 1] * 3, [nanoseconds] * 3],
    )


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., MadeRun]:
    return lambda **changed: MadeRun(tmp_path, monkeypatch, **changed)


def test_a_block_has_every_choice_once_in_a_random_order(made: Callable[..., MadeRun]):
    """What never rests is alone: it would disturb the others while they measure."""
    run = made()
    measured = run.measure()
    blocks = defaultdict(list)
    for launch in measured:
        blocks[launch.block].append((launch.backend, launch.setting, *launch.operations))
    assert sorted(blocks[0]) == [
        ("horovod", "default", "horovod"),
        ("mpich", "a", "mpi"),
        ("mpich", "default", "mpi"),
        ("ring", "default", "ring"),
    ]
    assert [sorted(block) for block in blocks.values()] == [sorted(blocks[0])] * 3
    assert len({tuple(block) for block in blocks.values()}) > 1
    assert [launch.position for launch in run.launches] == list(range(len(run.launches)))
    assert {launch.together is None for launch in measured if launch.backend == "horovod"} == {True}
    assert {launch.together is None for launch in measured if launch.backend != "horovod"} == {False}
    assert run.shown[0] == "measuring 2 ranks: launches 1 to 3 of 12, at most 8 min 00 s left"


@pytest.mark.parametrize(("start_seconds", "least"), [(0.5, 15), (3.0, 15), (40.0, 8)])
def test_launches_that_take_long_to_start_do_not_break_the_budget(
    made: Callable[..., MadeRun], start_seconds: float, least: int
):
    run = made(rank_counts=(2, 64))
    run.start_seconds = start_seconds
    measured = run.measure()
    assert 400 < run.now - 1000 < 480 * 1.1 + 5 * start_seconds
    assert len(measured) >= least
    assert any("the budget had no room for" in text for text in run.told) == (start_seconds == 40)


def test_a_group_is_cut_to_what_the_budget_has_room_for(made: Callable[..., MadeRun]):
    run = made(budget_seconds=6)
    run.measure()
    assert max(map(len, run.groups)) in (2, 3)
