"""Which launches a run consists of, and which settings the sweep chooses."""

from collections import Counter
from pathlib import Path

import pytest

from dlscale.benchmarks.message_sizes import schedule
from dlscale.benchmarks.message_sizes.launch import LaunchOrder
from dlscale.benchmarks.message_sizes.peers import Peer, PeerSetting
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, Samples

KIB, MIB = 2**10, 2**20
WANTED = schedule.Wanted(
    sizes=(4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB),
    modes=("hot", "fresh", "cold"),
    num_blocks=3,
    seed=1,
    num_cpus=2,
    ring=True,
)


def settings(*names: str) -> list[PeerSetting]:
    return [PeerSetting(name=name, default=name == "default") for name in names]


@pytest.fixture
def peers() -> list[Peer]:
    return [
        Peer(name="mpich", title="MPICH", kind="mpi", packages=[], settings=settings("default", "a", "b")),
        Peer(name="gloo", title="Gloo", kind="torch", packages=[], settings=settings("default")),
    ]


def names(orders: list[LaunchOrder]) -> list[tuple[str, str]]:
    return [(order.peer.name, order.setting.name) for order in orders]


def test_the_sweep_tries_what_there_is_to_choose(peers: list[Peer]):
    orders = schedule.sweep(WANTED, peers, 2, budget=60)
    assert sorted(names(orders)) == [("mpich", "a"), ("mpich", "b"), ("mpich", "default")]
    assert {order.modes for order in orders} == {("hot",)}


def test_a_block_has_every_choice_once_in_an_order_of_its_own(peers: list[Peer]):
    choices = [(peer, setting) for peer in peers for setting in peer.settings]
    orders = schedule.measurement(WANTED, choices, 2, budget=600)
    blocks = [names([order for order in orders if order.block == block]) for block in range(3)]
    assert all(Counter(block) == Counter(blocks[0]) for block in blocks)
    assert len(blocks[0]) == 4
    assert len({tuple(block) for block in blocks}) > 1
    assert [order.block for order in orders] == sorted(order.block for order in orders)
    again = schedule.measurement(WANTED, choices, 2, budget=600)
    assert names(again) == names(orders)


def test_a_run_fits_its_budget(peers: list[Peer]):
    choices = [(peer, setting) for peer in peers for setting in peer.settings]
    orders = schedule.measurement(WANTED, choices, 2, budget=600)
    assert sum(map(schedule.expected_seconds, orders)) == pytest.approx(600)


def test_crowded_ranks_are_kept_short(peers: list[Peer]):
    choices = [(peer, setting) for peer in peers for setting in peer.settings]
    orders = schedule.measurement(WANTED, choices, 4, budget=60)
    assert {order.setting.name for order in orders} == {"default"}
    assert {order.modes for order in orders} == {("hot",)}
    assert {tuple(order.operations) for order in orders} == {("mpi", "ring"), ("gloo",)}


def test_validity_pairs_ours_with_theirs(peers: list[Peer]):
    choices = [(peer, setting) for peer in peers for setting in peer.settings]
    orders = schedule.validity(WANTED, choices, {"mpich": Path("/imb")}, 2, budget=0)
    assert len(orders) == 3 * 2 * 2
    assert {order.setting.name for order in orders} == {"default", "a"}  # what is best of all that was chosen
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert {first.program, second.program} == {"dlscale", "IMB-MPI1"}
        assert (first.setting, first.block, first.sizes) == (second.setting, second.block, second.sizes)
    assert {order.program for order in orders[::2]} == {"dlscale", "IMB-MPI1"}  # who is first alternates
    assert max(orders[0].sizes) == 64 * MIB
    assert len(orders[0].sizes) == 5


def test_more_time_makes_more_pairs(peers: list[Peer]):
    def num_pairs(budget: float) -> int:
        choices = [(peers[0], setting) for setting in peers[0].settings]
        return len(schedule.validity(WANTED, choices, {"mpich": Path("/imb")}, 2, budget)) // 4

    assert num_pairs(0) == WANTED.num_blocks
    assert WANTED.num_blocks < num_pairs(100) < num_pairs(1000) == schedule.MOST_PAIRS


def tried(setting: str, **nanoseconds: int) -> MessageSizeLaunch:
    """`small=` and `large=` are the times of its two sizes; a rank of each call takes 1 ns less."""
    sizes = {"small": 4 * KIB, "large": MIB}
    return MessageSizeLaunch(
        purpose="tuning",
        block=0,
        position=0,
        backend="mpich",
        setting=setting,
        variables={},
        thread_level="single",
        num_ranks=2,
        program="dlscale",
        command="",
        started="",
        seconds=1,
        samples=[
            Samples(
                operation="mpi",
                mode="hot",
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
    assert schedule.seconds_by_size(tried("a", small=1000)) == {4 * KIB: pytest.approx(1e-6)}


def test_a_setting_is_chosen_where_it_is_fastest(peers: list[Peer]):
    mpich = peers[0].model_copy(update={"settings": settings("default", "small", "large", "slow", "same")})
    launches = [
        tried("default", small=1000, large=100_000),
        tried("small", small=500, large=200_000),
        tried("large", small=3000, large=20_000),
        tried("slow", small=2000, large=300_000),
        tried("same", small=999, large=99_900),  # less than 1 % gain
    ]
    assert [one.name for one in schedule.choose_settings(mpich, launches)] == ["default", "large", "small"]


def test_no_more_settings_than_asked_for(peers: list[Peer]):
    mpich = peers[0].model_copy(update={"settings": settings("default", "a", "b")})
    launches = [tried("default", small=1000, large=1000), tried("a", small=500), tried("b", large=400)]
    assert [one.name for one in schedule.choose_settings(mpich, launches, most=1)] == ["default", "b"]


def test_a_default_that_failed_leaves_room_for_what_works(peers: list[Peer]):
    assert [one.name for one in schedule.choose_settings(peers[0], [tried("b", small=10)])] == [
        "default",
        "b",
    ]
