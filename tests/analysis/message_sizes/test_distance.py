"""What was measured at one distance of the CPUs is told from the rest."""

import pytest

from dlscale.analysis.message_sizes.measurements import RoundTrip, only_at_distance
from dlscale.analysis.message_sizes.summary import summarise
from dlscale.base.errors import UsageError

from .conftest import KIB, MIB, MakeCampaign, MakeLaunch

NEAR, FAR = RoundTrip(least=0, most=150), RoundTrip(least=200, most=1000)
TIMES = {"mpi": {4 * KIB: 2.0, MIB: 100.0}, "ring": {4 * KIB: 1.0, MIB: 50.0}}
# Hot 4 KiB, hot 1 MiB, fresh 4 KiB, fresh 1 MiB, cold 4 KiB, cold 1 MiB; and one time before them all.
MOVED = (60, 60, 70, 300, 310, 320, 60)


@pytest.fixture
def moved(make_launch: MakeLaunch):
    return make_launch(TIMES, modes=("hot", "fresh", "cold"), round_trips=MOVED)


def cells(launch) -> set[tuple[str, int]]:
    return {(one.mode, one.message_bytes) for one in launch.samples}


def test_a_cell_counts_if_the_distance_was_right_before_and_after(make_campaign: MakeCampaign, moved):
    (near,) = only_at_distance(make_campaign(), [moved], NEAR)
    assert cells(near) == {("hot", 4 * KIB), ("hot", MIB)}
    assert max(near.round_trip_nanoseconds) == 70
    (far,) = only_at_distance(make_campaign(), [moved], FAR)
    assert cells(far) == {("fresh", MIB), ("cold", 4 * KIB)}


def test_a_launch_that_was_stopped_early_gives_what_it_has(
    make_campaign: MakeCampaign, make_launch: MakeLaunch
):
    launch = make_launch({"mpi": {4 * KIB: 2.0}}, round_trips=(60, 60))
    (near,) = only_at_distance(make_campaign(), [launch], NEAR)
    assert cells(near) == {("hot", 4 * KIB)}


def test_who_does_not_note_it_and_who_shares_cpus_is_left_out(
    make_campaign: MakeCampaign, make_launch: MakeLaunch, moved
):
    torch = make_launch({"gloo": {MIB: 900.0}}, backend="gloo", round_trips=())
    crowded = make_launch(TIMES, num_ranks=4, round_trips=MOVED)
    validity = make_launch(references={MIB: 1.0}, purpose="validity", round_trips=())
    kept = only_at_distance(make_campaign(), [torch, crowded, validity, moved], NEAR)
    assert [(one.backend, one.purpose, one.num_ranks) for one in kept] == [
        ("mpich", "measured", 2),
        ("mpich", "validity", 2),
    ]


def test_rows_follow(make_campaign: MakeCampaign, make_launch: MakeLaunch):
    slow = {"mpi": {MIB: 100.0}, "ring": {MIB: 100.0}}
    launches = [
        make_launch(TIMES, block=0, round_trips=(60, 60, 60)),
        make_launch(slow, block=1, round_trips=(300, 300, 300)),
    ]
    campaign = make_campaign()
    for wanted, expected in ((NEAR, 2.0), (FAR, 1.0)):
        summary = summarise(campaign, only_at_distance(campaign, launches, wanted))
        (row,) = [one for one in summary.rows if (one.backend, one.message_bytes) == ("mpich", MIB)]
        assert row.ring_speedup is not None
        assert row.ring_speedup.center == pytest.approx(expected)


def test_launches_at_one_distance_are_compared_across_blocks(
    make_campaign: MakeCampaign, make_launch: MakeLaunch
):
    """Also where one block has both sides: its pair would be all that counts."""
    ring = [
        make_launch({"ring": {MIB: seconds}}, backend="ring", block=block, round_trips=(60, 60))
        for block, seconds in enumerate((40.0, 50.0, 60.0))
    ]
    peer = [make_launch({"mpi": {MIB: 100.0}}, block=block, round_trips=(60, 60)) for block in (2, 3, 4)]
    launches = [one.model_copy(update={"position": place}) for place, one in enumerate(ring + peer)]
    campaign = make_campaign(sizes=[MIB])
    summary = summarise(campaign, only_at_distance(campaign, launches, NEAR))
    (row,) = [one for one in summary.rows if (one.backend, one.num_launches) == ("mpich", 3)]
    assert row.ring_speedup is not None
    assert row.ring_speedup.center == pytest.approx(100 / (40 * 50 * 60) ** (1 / 3))
    assert "unpaired" in row.ring_speedup.method


def test_nothing_left_is_an_error_that_says_what_there_was(make_campaign: MakeCampaign, moved):
    with pytest.raises(UsageError, match="while a flag took 2000 to 3000 ns; it took 60 to 320"):
        only_at_distance(make_campaign(), [moved], RoundTrip(least=2000, most=3000))
