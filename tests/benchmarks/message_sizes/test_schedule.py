"""Which launches a run consists of, how they share its budget, and which settings are chosen."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dlscale.benchmarks.message_sizes import run as message_sizes_run
from dlscale.benchmarks.message_sizes import schedule
from dlscale.benchmarks.message_sizes.launch import LaunchOrder
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting
from dlscale.benchmarks.message_sizes.run import Run, RunRequest
from dlscale.benchmarks.records.message_sizes import Collective, MessageSizeLaunch, Samples, load_run

KIB, MIB = 2**10, 2**20
REQUEST = schedule.SweepRequest(
    sizes=(4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB), num_blocks=3, seed=1
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
def choices(peers: list[Peer]) -> list[schedule.Choice]:
    return [(peer, setting) for peer in peers for setting in peer.settings]


def names(orders: Sequence[LaunchOrder]) -> list[tuple[str, str]]:
    return [(order.peer.name, order.setting.name) for order in orders]


def test_what_there_is_to_choose_is_tried_and_the_default_first(peers: list[Peer]):
    assert [schedule.has_choice(peer) for peer in peers] == [False, True, False]
    orders = schedule.tuning(REQUEST, peers[1], 2)
    assert names(orders)[0] == ("mpich", "default")
    assert sorted(names(orders)[1:]) == [("mpich", "a"), ("mpich", "b")]


def test_launches_of_a_block_run_together_as_far_as_memory_goes(peers: list[Peer]):
    """What never rests is alone, for it would disturb the others while they measure."""
    peers[2] = peers[2].model_copy(update={"rests": False})
    choices = [(peer, setting) for peer in peers for setting in peer.settings]
    orders = schedule.measurement(REQUEST, choices, 2)
    groups = schedule.groups(orders, most_together=4)
    assert [len(group) for group in groups] == [3, 2, 1] * 3
    assert all(len({order.block for order in group}) == 1 for group in groups)
    assert {group[0].peer.name for group in groups if len(group) == 1} == {"gloo"}
    assert sorted(launches([order for group in groups for order in group])) == sorted(launches(orders))
    checks = schedule.validity(REQUEST, peers, {"mpich": Path("/imb")}, 2)
    alone = [group for group in schedule.groups(checks, most_together=4) if group[0].program == "IMB-MPI1"]
    assert [len(group) for group in alone] == [1] * 3


def test_a_block_has_every_choice_once_in_an_order_of_its_own(choices: list[schedule.Choice]):
    """The ring in memory of its own has a launch of its own, too: in one process they lost each other's messages."""
    orders = schedule.measurement(REQUEST, choices, 2)
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
    assert [order.block for order in orders] == sorted(order.block for order in orders)
    assert launches(schedule.measurement(REQUEST, choices, 2)) == launches(orders)


def launches(orders: Sequence[LaunchOrder]) -> list[tuple[str, tuple[str, ...]]]:
    return [(order.name, tuple(order.operations)) for order in orders]


def test_oversubscribed_ranks_are_kept_short(choices: list[schedule.Choice]):
    orders = schedule.measurement(REQUEST, choices, 4, oversubscribed=True)
    assert {order.setting.name for order in orders} == {"default"}
    assert {tuple(order.operations) for order in orders} == {("ring",), ("mpi",), ("gloo",)}


def test_validity_pairs_ours_with_theirs(peers: list[Peer]):
    orders = schedule.validity(REQUEST, peers, {"mpich": Path("/imb")}, 2)
    assert names(orders) == [("mpich", "default")] * 6
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert {first.program, second.program} == {"dlscale", "IMB-MPI1"}
        assert (first.setting, first.block, first.sizes) == (second.setting, second.block, second.sizes)
    assert {order.program for order in orders[::2]} == {"dlscale", "IMB-MPI1"}  # which is first alternates
    assert (min(orders[0].sizes), max(orders[0].sizes)) == (4 * KIB, 256 * MIB)


def test_every_operation_of_a_library_is_in_its_launches(peers: list[Peer]):
    ring, mpich, gloo = peers
    both = ("allreduce", "broadcast")
    assert schedule.operations(mpich, both) == ["mpi", "mpi:broadcast", "stream"]
    assert schedule.operations(gloo, ("reduce_scatter",)) == ["gloo:reduce_scatter"]
    assert schedule.operations(ring, both, only_own=True) == ["ring", "ring:broadcast"]
    assert schedule.operations(ring, both) == ["ring", "ring:broadcast", "stream"]


@pytest.mark.parametrize(
    ("collectives", "several_nodes"), [(("broadcast", "allgather"), False), (("allreduce",), True)]
)
def test_the_rings_variants_are_allreduces_on_one_node(
    peers: list[Peer], collectives: tuple[Collective, ...], several_nodes: bool
):
    request = replace(REQUEST, collectives=collectives, several_nodes=several_nodes)
    orders = schedule.measurement(request, [(peers[0], peers[0].settings[0])], 2)
    own = ["ring"] if several_nodes else ["ring:broadcast", "ring:allgather"]
    assert [order.operations for order in orders] == [own] * 3


class MadeClock:
    """Time passes only when a launch takes it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("most_together", [1, 3])
@pytest.mark.parametrize("overhead", [0.5, 3.0, 40.0])
def test_launches_that_take_longer_than_thought_do_not_break_the_budget(
    choices: list[schedule.Choice], overhead: float, most_together: int
):
    clock = MadeClock()
    budget = schedule.Budget(480, clock)
    made = []
    groups = schedule.groups(schedule.measurement(REQUEST, choices, 2), most_together)
    for group in budget.timed(groups, until=0):
        assert clock.now + sum(order.limit_seconds for order in group) <= 1000 + 480 * 1.05
        for order in group:
            seconds = overhead + 1.3 * order.seconds
            clock.now += seconds
            budget.spent(order, seconds)
            made.append(order)
    assert clock.now - 1000 <= 1.1 * 480
    assert clock.now - 1000 >= 0.8 * 480
    assert len(made) == (18 if overhead < 40 else {1: 10, 3: 9}[most_together])


def test_a_group_is_cut_to_what_the_budget_has_room_for(choices: list[schedule.Choice]):
    groups = schedule.groups(schedule.measurement(REQUEST, choices, 2), 9)
    (cut,) = schedule.Budget(10.0, MadeClock()).timed(groups, until=0)
    assert 1 < len(cut) < len(groups[0])


def test_what_is_left_is_shared_equally_after_start_up(choices: list[schedule.Choice]):
    budget = schedule.Budget(600, MadeClock())
    group = next(budget.timed(schedule.groups(schedule.measurement(REQUEST, choices, 2), 9), until=100))
    start = 3 * (2 * 3 + 3 * 2 + 6)
    assert [order.seconds for order in group] == pytest.approx([(500 - start) / 18] * 6)


@pytest.fixture
def whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """whole_run(launch, peers, ...): a run whose launches are made by `launch`; what it tells and shows is listed."""

    def made(
        launch: Callable[[LaunchOrder, int], MessageSizeLaunch], peers: list[Peer], **request: Any
    ) -> Run:
        monkeypatch.setattr(message_sizes_run.together, "run_together", made_by(launch))
        monkeypatch.setattr(message_sizes_run, "choose_peers", lambda *_: peers)
        monkeypatch.setattr(message_sizes_run, "unusable", lambda *_: None)
        monkeypatch.setattr(message_sizes_run, "most_together", lambda *_: 3)  # 64 ranks on any machine
        monkeypatch.setattr(message_sizes_run, "usable_cpus", lambda: [0, 1])
        seen = {name: request.pop(name) for name in ("tell", "progress", "clock")}
        common = {"sizes": (4 * KIB, MIB), "backends": ["all"], "seed": 1, "references": {}}
        run = Run(RunRequest(**common, environments=tmp_path, **request), **seen)
        run.prepare(tmp_path)
        run.measure()
        return run

    return made


def test_a_whole_run_stops_at_its_budget_with_what_it_has(peers: list[Peer], whole_run: Callable[..., Run]):
    """Eight minutes end within nine, though every launch takes three times what it was given."""
    clock, told = MadeClock(), list[str]()

    def launch(order: LaunchOrder, position: int) -> MessageSizeLaunch:
        seconds = min(20 + 3 * order.seconds, order.limit_seconds)
        clock.now += seconds
        return tried(order.setting.name, backend=order.peer.name, small=1000, position=position, wall=seconds)

    seen = {"tell": told.append, "progress": lambda _: None, "clock": clock}
    run = whole_run(launch, peers, rank_counts=(2, 64), num_blocks=6, budget_seconds=480, **seen)
    assert 400 < clock.now - 1000 < 540
    assert any("the budget had no room for" in text for text in told)
    _, launches = load_run(run.folder)
    assert [launch.position for launch in launches] == list(range(len(launches)))


# Wall seconds of launches that were given 0.4 s each, in tests/golden/records, on a machine with other programs.
RECORDED = {"mpich": [2.6, 2.4, 4.4], "gloo": [5.3, 7.4, 7.4], "ring": [3.5, 3.1, 8.0]}
SHOWN = re.compile(r"; about (?:(\d+) min )?(\d+) s left$")


@pytest.mark.parametrize("names", [["ring"], ["ring", "mpich", "gloo"]])
def test_what_is_left_is_right_from_the_first_launch_on(
    peers: list[Peer], names: list[str], whole_run: Callable[..., Run]
):
    """A quarter of an hour was said to be left of runs of three minutes, and a slow first launch made 24 of 4."""
    clock, shown, made = MadeClock(), list[tuple[float, float]](), Counter[str]()

    def launch(order: LaunchOrder, position: int) -> MessageSizeLaunch:
        name = order.peer.name
        seconds = RECORDED[name][made[name] % 3] - 0.4 + order.seconds
        made[name] += 1
        clock.now += seconds
        failed = made[name] == 5  # is not made again
        faster = {"a": {"small": 500}, "b": {"large": 500}}.get(order.setting.name, {})  # both are chosen
        times = {"small": 1000, "large": 1000, **faster}
        record = tried(order.setting.name, backend=name, position=position, wall=seconds, **times)
        return record.model_copy(update={"failure": "a rank died"}) if failed else record

    def progress(line: str) -> None:
        match = SHOWN.search(line)
        assert match, line
        shown.append((clock.now, 60 * int(match[1] or 0) + int(match[2])))

    chosen = [peer for peer in peers if peer.name in names]
    seen = {"tell": lambda _: None, "progress": progress, "clock": clock}
    whole_run(launch, chosen, rank_counts=(2,), num_blocks=3, budget_seconds=840, **seen)
    ends = [at + left for at, left in shown]  # when the run is said to end
    assert ends == pytest.approx([clock.now] * len(ends), abs=30)
    assert max(after - before for before, after in pairwise([left for _, left in shown])) < 15
    assert len(shown) == sum(made.values()) >= 3


def made_by(
    run_launch: Callable[[LaunchOrder, int], MessageSizeLaunch],
) -> Callable[..., list[MessageSizeLaunch]]:
    """`run_together` with launches that are made up."""

    def run_together(
        orders: Sequence[LaunchOrder],
        *_: object,
        position: int,
        starting: Callable[[LaunchOrder], None],
        **__: object,
    ) -> list[MessageSizeLaunch]:
        made = []
        for index, order in enumerate(orders):
            starting(order)
            made.append(run_launch(order, position + index))
        return made

    return run_together


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
        program="dlscale",
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


def test_the_slowest_rank_counts():
    assert schedule.seconds_by_point(tried("a", small=1000)) == {("allreduce", 4 * KIB): pytest.approx(1e-6)}


@pytest.mark.parametrize(
    ("times", "most", "expected"),
    [
        (  # where it is fastest; a gain of less than 1 % is none
            {
                "default": {"small": 1000, "large": 100_000},
                "small": {"small": 500, "large": 200_000},
                "large": {"small": 3000, "large": 20_000},
                "slow": {"small": 2000, "large": 300_000},
                "same": {"small": 999, "large": 99_900},
            },
            3,
            ["default", "large", "small"],
        ),
        (  # no more than asked for
            {"default": {"small": 1000, "large": 1000}, "small": {"small": 500}, "large": {"large": 400}},
            1,
            ["default", "large"],
        ),
        (
            {"large": {"small": 10}},
            3,
            ["default", "large"],
        ),  # a default that failed leaves room for what works
    ],
)
def test_a_setting_is_chosen_where_it_is_fastest(
    peers: list[Peer],
    monkeypatch: pytest.MonkeyPatch,
    times: dict[str, dict[str, int]],
    most: int,
    expected: list[str],
):
    monkeypatch.setattr(schedule, "MOST_TUNED", most)
    mpich = peers[1].model_copy(update={"settings": settings("default", "small", "large", "slow", "same")})
    launches = [tried(name, **nanoseconds) for name, nanoseconds in times.items()]
    assert [setting.name for setting in schedule.choose_settings(mpich, launches)] == expected
