"""Which launches a run consists of, how they share its budget, and which settings are chosen."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlscale.benchmarks.message_sizes import run as message_sizes_run
from dlscale.benchmarks.message_sizes.launch import LaunchOrder
from dlscale.benchmarks.message_sizes.machine import ThisNode
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting
from dlscale.benchmarks.message_sizes.run import Budget, Choice, Run, RunRequest, choose_settings, groups
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, Samples, load_run

KIB, MIB = 2**10, 2**20
REQUEST = RunRequest(
    sizes=(4 * KIB, MIB),
    rank_counts=(2,),
    backends=["all"],
    num_blocks=3,
    budget_seconds=480,
    machine=ThisNode(environments=Path("/nowhere"), cpus=[0, 1]),
)


def settings(*names: str) -> list[PeerSetting]:
    return [PeerSetting(name=name, default=name == "default") for name in names]


@pytest.fixture
def peers() -> list[Peer]:
    return [
        Peer(name="ring", title="ring", kind="ring", settings=settings("default")),
        Peer(name="mpich", title="MPICH", kind="mpi", settings=settings("default", "a", "b")),
        Peer(name="gloo", title="Gloo", kind="torch", settings=settings("default")),
    ]


@pytest.fixture
def choices(peers: list[Peer]) -> list[Choice]:
    return [(peer, setting) for peer in peers for setting in peer.settings]


def launches(orders: Sequence[LaunchOrder]) -> list[tuple[str, tuple[str, ...]]]:
    return [(order.name, tuple(order.operations)) for order in orders]


def test_what_there_is_to_choose_is_tried_and_the_default_first(peers: list[Peer]):
    tried = [[order.setting.name for order in REQUEST.trials(peer, 2)] for peer in peers]
    assert tried == [[], ["default", "a", "b"], []]


def test_launches_of_a_block_run_together_as_far_as_memory_goes(peers: list[Peer]):
    """What never rests is alone, for it would disturb the others while they measure."""
    peers[2] = peers[2].model_copy(update={"rests": False})
    orders = REQUEST.measurement([(peer, setting) for peer in peers for setting in peer.settings], 2)
    made = groups(orders, most_together=4)
    assert [len(group) for group in made] == [3, 2, 1] * 3
    assert all(len({order.block for order in group}) == 1 for group in made)
    assert {group[0].peer.name for group in made if len(group) == 1} == {"gloo"}
    assert sorted(launches([order for group in made for order in group])) == sorted(launches(orders))


def test_a_block_has_every_choice_once_in_an_order_of_its_own(choices: list[Choice]):
    """The ring in memory of its own has a launch of its own, too: in one process they lost each other's messages."""
    orders = REQUEST.measurement(choices, 2)
    blocks = [launches([order for order in orders if order.block == block]) for block in range(3)]
    assert sorted(blocks[0]) == [
        ("Gloo, default, 2 ranks", ("gloo", "stream")),
        ("MPICH, a, 2 ranks", ("mpi", "stream")),
        ("MPICH, b, 2 ranks", ("mpi", "stream")),
        ("MPICH, default, 2 ranks", ("mpi", "stream")),
        ("ring, default, 2 ranks", ("ring", "stream")),
        ("ring, memory of its own, 2 ranks", ("ring-shared",)),
    ]
    assert all(sorted(block) == sorted(blocks[0]) for block in blocks)
    assert len({tuple(block) for block in blocks}) > 1
    assert launches(REQUEST.measurement(choices, 2)) == launches(orders)


@pytest.mark.parametrize(
    ("collectives", "alone", "expected"),
    [
        (("allreduce", "broadcast"), False, [["ring", "ring:broadcast", "stream"], ["ring-shared"]]),
        (("broadcast", "allgather"), False, [["ring:broadcast", "ring:allgather"]]),
        (("allreduce",), True, [["ring"]]),
    ],
)
def test_what_launches_of_the_ring_time(
    peers: list[Peer], collectives: tuple[str, ...], alone: bool, expected: list[list[str]]
):
    orders = replace(REQUEST, collectives=collectives).orders(peers[0], 2, alone=alone)
    assert [order.operations for order in orders] == expected


class MadeClock:
    """Time passes only when a launch takes it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("most_together", [1, 3])
@pytest.mark.parametrize("overhead", [0.5, 3.0, 40.0])
def test_launches_that_take_longer_than_thought_do_not_break_the_budget(
    choices: list[Choice], overhead: float, most_together: int
):
    clock = MadeClock()
    budget = Budget(480, clock)
    made = []
    for group in budget.timed(groups(REQUEST.measurement(choices, 2), most_together), until=0):
        assert clock.now + sum(order.limit_seconds for order in group) <= 1000 + 480 * 1.05
        for order in group:
            seconds = overhead + 1.3 * order.seconds
            clock.now += seconds
            budget.spent(order, seconds)
            made.append(order)
    assert 0.8 * 480 <= clock.now - 1000 <= 1.1 * 480
    assert len(made) == 18 if overhead < 40 else 8 < len(made) < 12


def test_a_group_is_cut_to_what_the_budget_has_room_for(choices: list[Choice]):
    every = groups(REQUEST.measurement(choices, 2), 9)
    (cut,) = Budget(10.0, MadeClock()).timed(every, until=0)
    assert 1 < len(cut) < len(every[0])


@pytest.fixture
def whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """whole_run(make, peers, ...): a run whose launches are made by `make`."""

    def made(make: Callable[[LaunchOrder, int], MessageSizeLaunch], peers: list[Peer], **seen: Any) -> Run:
        def run_together(orders: Sequence[LaunchOrder], *_: object, position: int, starting: Any) -> Any:
            for order in orders:
                starting(order)
            return [make(order, position + index) for index, order in enumerate(orders)]

        monkeypatch.setattr(message_sizes_run.launch, "run_together", run_together)
        monkeypatch.setattr(ThisNode, "peers", lambda *_: peers)
        monkeypatch.setattr(ThisNode, "state", lambda *_: (None, {}))
        monkeypatch.setattr(message_sizes_run, "most_together", lambda *_: 3)  # 64 ranks on any machine
        run = Run(replace(REQUEST, rank_counts=(2, 64), num_blocks=6), **seen)
        run.prepare(tmp_path)
        run.measure()
        return run

    return made


def test_a_whole_run_stops_at_its_budget_with_what_it_has(peers: list[Peer], whole_run: Callable[..., Run]):
    """Eight minutes end within nine, though every launch takes three times what it was given."""
    clock, told, shown = MadeClock(), list[str](), list[str]()
    faster = {"a": {"large": 500}}

    def make(order: LaunchOrder, position: int) -> MessageSizeLaunch:
        seconds = min(20 + 3 * order.seconds, order.limit_seconds)
        clock.now += seconds
        name = order.setting.name
        times = {"small": 1000, "large": 1000, **faster.get(name, {})}
        made = tried(name, backend=order.peer.name, position=position, wall=seconds, **times)
        return made.model_copy(update={"purpose": order.purpose, "num_ranks": 2})

    run = whole_run(make, peers, tell=told.append, progress=shown.append, clock=clock)
    assert 400 < clock.now - 1000 < 540
    assert any("the budget had no room for" in text for text in told)
    assert shown[0] == "trying settings on 2 ranks 1/3: MPICH, default, 2 ranks; at most 8 min 00 s left"
    _, made = load_run(run.folder)
    assert [launch.position for launch in made] == list(range(len(made)))
    measured = {
        launch.setting for launch in made if (launch.backend, launch.purpose) == ("mpich", "measured")
    }
    assert measured == {"default", "a"}


def tried(
    setting: str, backend: str = "mpich", position: int = 0, wall: float = 1, **nanoseconds: int
) -> MessageSizeLaunch:
    """`small=` and `large=` are the times of its two sizes; a rank of each call takes 1 ns less."""
    sizes = {"small": 4 * KIB, "large": MIB}
    return MessageSizeLaunch(
        purpose="tuning",
        block=0,
        position=position,
        backend=backend,
        setting=setting,
        variables={},
        thread_level="single",
        num_ranks=2,
        command="",
        started="",
        seconds=wall,
        samples=[
            Samples(
                operation="mpi",
                message_bytes=sizes[name],
                round=0,
                num_warmup=5,
                nanoseconds=[[value - 1] * 3, [value] * 3],
                spread_nanoseconds=[0] * 3,
            )
            for name, value in nanoseconds.items()
        ],
    )


SEVERAL = {
    "default": {"small": 1000, "large": 100_000},
    "a": {"small": 500, "large": 200_000},
    "b": {"small": 3000, "large": 20_000},
    "slow": {"small": 2000, "large": 300_000},
}


@pytest.mark.parametrize(
    ("times", "most", "expected"),
    [
        (SEVERAL, 3, {"default", "a", "b"}),  # where it is fastest
        ({**SEVERAL, "default": {"small": 400, "large": 30_000}}, 3, {"default", "b"}),
        ({**SEVERAL, "b": {"small": 400, "large": 20_000}}, 1, {"default", "b"}),
        ({"b": {"small": 10}}, 3, {"default", "b"}),  # a default that failed leaves room for what works
        ({"default": {}, "b": {}}, 3, {"default"}),
        ({}, 3, {"default"}),
    ],
)
def test_settings_are_chosen_that_are_fastest_somewhere(
    peers: list[Peer],
    monkeypatch: pytest.MonkeyPatch,
    times: dict[str, dict[str, int]],
    most: int,
    expected: set[str],
):
    monkeypatch.setattr(message_sizes_run, "MOST_TUNED", most)
    mpich = peers[1].model_copy(update={"settings": settings("default", "a", "b", "slow")})
    made = [tried(name, **nanoseconds) for name, nanoseconds in times.items()]
    assert {setting.name for setting in choose_settings(mpich, made)} == expected
