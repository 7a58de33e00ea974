"""From launches to rows: whose time counts, what is paired with what, and what is missing."""

import pytest

from dlscale.analysis.message_sizes.summary import average_bus_bandwidths, summarise
from dlscale.benchmarks.records.message_sizes import PeerState

from .conftest import KIB, MIB

DRIFT = (1.0, 3.0, 0.5)  # of the machine, from block to block


def row(summary, backend, size, setting="default"):
    (found,) = [
        one
        for one in summary.rows
        if (one.backend, one.message_bytes) == (backend, size)
        and (one.setting == setting or backend == "memory")
    ]
    return found


@pytest.fixture
def summary(make_campaign, make_launch):
    """Three blocks on a machine that drifts; MPICH takes 4, the ring 2 and the stream 1 microsecond at 1 MiB."""
    launches = []
    for block, noise in enumerate(DRIFT):
        mpich = {
            "mpi": {4 * KIB: 3.0, MIB: 400.0},
            "ring": {4 * KIB: 1.0, MIB: 200.0},
            "ring-shared": {4 * KIB: 1.0, MIB: 100.0},
            "stream": {4 * KIB: 0.1, MIB: 80.0},
        }
        tuned = {"mpi": {4 * KIB: 5.0, MIB: 300.0}, "ring": {4 * KIB: 1.0, MIB: 200.0}}
        launches += [
            make_launch(mpich, block=block, noise=noise),
            make_launch(tuned, block=block, noise=noise * 1.5, setting="tuned"),
            make_launch({"gloo": {4 * KIB: 100.0, MIB: 1000.0}}, block=block, noise=noise, backend="gloo"),
        ]
    return summarise(make_campaign(), launches)


def test_the_slowest_rank_counts(summary):
    mpich = row(summary, "mpich", MIB)
    assert mpich.seconds.center == pytest.approx(400e-6)  # of 400, 1200 and 200
    assert mpich.best_seconds == pytest.approx(200e-6)
    assert (mpich.num_launches, mpich.num_calls) == (3, 3 * 8)


def test_drift_cancels_in_what_ran_in_one_process(summary):
    mpich, tuned = row(summary, "mpich", MIB), row(summary, "mpich", MIB, "tuned")
    for found, expected in (
        (mpich.ring_speedup, 2.0),
        (tuned.ring_speedup, 1.5),
        (mpich.shared_speedup, 4.0),
    ):
        assert found.center == pytest.approx(expected, rel=1e-3)
        assert found.low == pytest.approx(expected, rel=1e-2)
        assert found.method == "paired t"


def test_what_has_no_ring_in_its_process_is_paired_with_that_of_its_block(summary):
    gloo = row(summary, "gloo", MIB)
    assert gloo.ring_speedup.center == pytest.approx(5.0, rel=1e-3)
    assert gloo.fraction_of_bound.center == pytest.approx(0.08, rel=1e-3)


def test_the_best_setting_is_found_size_by_size(summary):
    assert row(summary, "mpich", 4 * KIB).tuned
    assert not row(summary, "mpich", MIB).tuned
    assert row(summary, "mpich", MIB, "tuned").tuned


def test_what_is_missing_is_a_row_and_a_sentence(make_campaign, make_launch):
    intel = PeerState(name="intelmpi", title="Intel MPI", kind="mpi", versions={}, unusable="no wheel")
    mpich = PeerState(name="mpich", title="MPICH", kind="mpi", versions={}, unusable=None)
    launches = [
        make_launch({"mpi": {4 * KIB: 1.0}}, cell_failures={"ring": "wrong result at element 3"}),
        make_launch(setting="tuned", operations=["mpi"], failure="a rank died: signal 9"),
    ]
    summary = summarise(make_campaign(peers=[mpich, intel]), launches)
    assert row(summary, "intelmpi", MIB, "not measured").failure == "no wheel"
    assert row(summary, "mpich", MIB, "tuned").failure == "a rank died: signal 9"
    assert summary.failures == [
        "Intel MPI: no wheel",
        "mpich (default), 2 ranks, measured, ring: wrong result at element 3",
        "mpich (tuned), 2 ranks, measured: a rank died: signal 9",
    ]


def test_each_number_of_ranks_has_a_ring(make_campaign, make_launch):
    times = {"mpi": {MIB: 400.0}, "ring": {MIB: 200.0}}
    launches = [
        make_launch(times, backend="openmpi", setting="tuned"),
        make_launch(times, backend="openmpi"),
        make_launch({"mpi": {MIB: 800.0}, "ring": {MIB: 300.0}}, backend="openmpi", num_ranks=4),
    ]
    summary = summarise(make_campaign(rank_counts=[2, 4]), launches)
    rings = {one.num_ranks: one.seconds for one in summary.rows if one.role == "ring"}
    assert {ranks: seconds.center for ranks, seconds in rings.items() if seconds} == {
        2: pytest.approx(200e-6),
        4: pytest.approx(300e-6),
    }


def test_the_ring_in_launches_of_its_own_is_paired_block_by_block(make_campaign, make_launch):
    ring = PeerState(name="ring", title="ring", kind="ring", versions={}, unusable=None)
    mpich = PeerState(name="mpich", title="MPICH", kind="mpi", versions={}, unusable=None)
    launches = []
    for block, noise in enumerate(DRIFT):
        launches += [
            make_launch(
                {"ring": {MIB: 200.0}, "stream": {MIB: 80.0}}, backend="ring", block=block, noise=noise
            ),
            make_launch({"ring-shared": {MIB: 100.0}}, backend="ring", block=block, noise=noise),
            make_launch({"mpi": {MIB: 400.0}, "stream": {MIB: 40.0}}, block=block, noise=noise),
        ]
    summary = summarise(make_campaign(peers=[ring, mpich]), launches)
    peer, own_row = row(summary, "mpich", MIB), row(summary, "ring", MIB, "ordinary memory")
    assert peer.ring_speedup.center == pytest.approx(2.0, rel=1e-3)
    assert peer.fraction_of_bound.center == pytest.approx(0.1, rel=1e-3)  # of its own launches' bound
    assert own_row.num_launches == 3
    shared = row(summary, "ring", MIB, "memory of its own, direct push")
    assert shared.num_launches == 3
    assert shared.fraction_of_bound.center == pytest.approx(0.8, rel=1e-3)  # of the ring's launches' bound
    assert shared.ring_speedup.center == pytest.approx(0.5, rel=1e-3)
    assert [one.backend for one in summary.rows if one.role == "peer"] == ["mpich"]
    assert average_bus_bandwidths(summary.rows) == {
        (2, "ring"): pytest.approx(MIB / 200e-6 / 1e9),
        (2, "MPICH"): pytest.approx(MIB / 400e-6 / 1e9),
    }


def test_a_launch_that_fails_says_which_of_the_rings_it_was(make_campaign, make_launch):
    ring = PeerState(name="ring", title="ring", kind="ring", versions={}, unusable=None)
    own, shared = ["ring", "stream", "ring:broadcast"], ["ring-shared"]
    campaign = make_campaign(peers=[ring], sizes=[MIB], collectives=["allreduce", "broadcast"])
    good = make_launch({"ring": {MIB: 200.0}, "stream": {MIB: 80.0}}, backend="ring", operations=own)
    bad = make_launch(backend="ring", operations=shared, failure="a rank died: signal 9")
    summary = summarise(campaign, [good, bad])
    assert {one.role: one.failure for one in summary.rows} == {
        "ring": None,
        "stream": None,
        "ring-shared": "a rank died: signal 9",
    }
    assert summary.failures == ["ring (default), 2 ranks, measured, ring-shared: a rank died: signal 9"]

    all_bad = summarise(campaign, [bad, make_launch(backend="ring", operations=own, failure="no memory")])
    assert [(one.role, one.collective, one.failure) for one in all_bad.rows] == [
        ("ring", "allreduce", "no memory"),
        ("ring-shared", "allreduce", "a rank died: signal 9"),
        ("ring", "broadcast", "no memory"),
    ]
