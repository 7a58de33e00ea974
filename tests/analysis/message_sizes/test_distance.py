"""Launches that took turns are compared turn by turn, and what was measured at one distance is told from the rest."""

import pytest

from dlscale.analysis.message_sizes.measurements import RoundTrip, only_at_distance
from dlscale.analysis.message_sizes.summary import MessageSizeSummary, summarise
from dlscale.analysis.statistics import Interval
from dlscale.base.errors import UsageError

from .conftest import KIB, MIB, MakeCampaign, MakeLaunch

NEAR, FAR = RoundTrip(least=0, most=150), RoundTrip(least=200, most=1000)
TIMES = {"mpi": {4 * KIB: 2.0, MIB: 100.0}, "ring": {4 * KIB: 1.0, MIB: 50.0}}
MOVED = {
    ("hot", 4 * KIB): (60, 60),
    ("hot", MIB): (60, 70),
    ("fresh", 4 * KIB): (70, 300),
    ("fresh", MIB): (300, 310),
    ("cold", 4 * KIB): (310, 320),
    ("cold", MIB): (320, 60),
}


@pytest.fixture
def moved(make_launch: MakeLaunch):
    return make_launch(TIMES, modes=("hot", "fresh", "cold"), round_trips=MOVED)


def cells(launch) -> set[tuple[str, int]]:
    return {(one.mode, one.message_bytes) for one in launch.samples}


def test_a_block_of_calls_counts_if_the_distance_was_right_before_and_after(
    make_campaign: MakeCampaign, moved
):
    (near,) = only_at_distance(make_campaign(), [moved], NEAR)
    assert cells(near) == {("hot", 4 * KIB), ("hot", MIB)}
    (far,) = only_at_distance(make_campaign(), [moved], FAR)
    assert cells(far) == {("fresh", MIB), ("cold", 4 * KIB)}


def test_who_does_not_note_it_and_who_shares_cpus_is_left_out(
    make_campaign: MakeCampaign, make_launch: MakeLaunch, moved
):
    torch = make_launch({"gloo": {MIB: 900.0}}, backend="gloo", round_trips=())
    crowded = make_launch(TIMES, num_ranks=4)
    validity = make_launch(references={MIB: 1.0}, purpose="validity", round_trips=())
    kept = only_at_distance(make_campaign(), [torch, crowded, validity, moved], NEAR)
    assert [(one.backend, one.purpose, one.num_ranks) for one in kept] == [
        ("mpich", "measured", 2),
        ("mpich", "validity", 2),
    ]


def ring_over_mpich(summary: MessageSizeSummary) -> Interval:
    (row,) = [one for one in summary.rows if (one.backend, one.message_bytes) == ("mpich", MIB)]
    assert row.ring_speedup is not None
    return row.ring_speedup


def test_rows_follow(make_campaign: MakeCampaign, make_launch: MakeLaunch):
    slow = {"mpi": {MIB: 100.0}, "ring": {MIB: 100.0}}
    launches = [
        make_launch(TIMES, block=0, round_trips=(60, 60)),
        make_launch(slow, block=1, round_trips=(300, 300)),
    ]
    campaign = make_campaign()
    for wanted, expected in ((NEAR, 2.0), (FAR, 1.0)):
        summary = summarise(campaign, only_at_distance(campaign, launches, wanted))
        assert ring_over_mpich(summary).center == pytest.approx(expected)


def test_launches_that_took_turns_are_compared_in_those_that_both_have(
    make_campaign: MakeCampaign, make_launch: MakeLaunch
):
    """The machine became three times as slow after the first round, and one of them was not measured before."""
    launches = [
        make_launch({"ring": {MIB: 10.0}}, backend="ring", together=0, rounds={0: 1.0, 1: 3.0}),
        make_launch({"mpi": {MIB: 20.0}}, together=0, rounds={1: 3.0}),
    ]
    campaign = make_campaign(sizes=[MIB])
    assert ring_over_mpich(summarise(campaign, launches)).center == pytest.approx(2.0)
    apart = [one.model_copy(update={"together": place}) for place, one in enumerate(launches)]
    assert ring_over_mpich(summarise(campaign, apart)).center == pytest.approx(3.0)


def test_a_turn_that_something_else_held_up_does_not_decide(
    make_campaign: MakeCampaign, make_launch: MakeLaunch
):
    calm = {0: 1.0, 1: 1.0, 2: 1.0}
    launches = [
        make_launch({"ring": {MIB: 10.0}}, backend="ring", together=0, rounds={**calm, 1: 50.0}),
        make_launch({"mpi": {MIB: 20.0}}, together=0, rounds=calm),
    ]
    assert ring_over_mpich(summarise(make_campaign(sizes=[MIB]), launches)).center == pytest.approx(2.0)


def test_nothing_left_is_an_error_that_says_what_there_was(make_campaign: MakeCampaign, moved):
    with pytest.raises(UsageError, match="while a flag took 2000 to 3000 ns; it took 60 to 320"):
        only_at_distance(make_campaign(), [moved], RoundTrip(least=2000, most=3000))
