"""Sizes, tiers and jobs: what a study becomes on a machine with a scheduler, and what it costs."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.base.errors import UsageError
from dlscale.benchmarks.jobs.jobs import cut
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.plan import MOST_FACTOR, MOST_SIZES, shape, tiers
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import System


def fact(value):
    return {"value": value, "source": "page"}


def machine(ranks_per_node=1, num_nodes=100, **changes):
    values = {
        "name": "somewhere",
        "title": "Somewhere",
        "scheduler": "slurm",
        "launcher": "srun",
        "sources": {"page": "the centre's page"},
        "node": {"cores": fact(64)},
        "filesystem": {"results": "$SCRATCH/dlscale"},
        "partitions": {
            "regular": {"num_nodes": fact(num_nodes), "max_walltime": fact("4 h")},
            "debug": {"num_nodes": fact(num_nodes), "max_nodes": fact(2)},
        },
        "partition": "regular",
        "placement": {"ranks_per_node": ranks_per_node},
        "environments": {"site": {"prefix": "current", "setup": "none"}},
    }
    return System.model_validate(values | changes)


def planned(system, name="weak-scaling", data="synthetic", **changes):
    wanted = {"backends": ["none", "ring"], "preset": "tiny"} | changes
    study = load_study(name, **wanted)
    return expand(study, system, environment="site", data=data)


def jobs_of(plan, limit=math.inf):
    return cut(plan, plan.launches, machine(), limit=limit)


def test_the_usual_sizes_are_powers_of_two_and_another_one_and_a_single_rank():
    study = load_study("weak-scaling")
    found = shape(study, machine(ranks_per_node=4))
    assert found.ranks == (1, *(4 * n for n in (1, 2, 3, 4, 8, 16, 32, 64)))
    assert (found.num_cores, found.cores_per_rank) == (64, 16)
    assert shape(study, machine(num_nodes=4)).ranks == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("asked", "sizes"),
    [
        ({"nodes": [2, 8]}, [8, 32]),
        ({"nodes": [2], "ranks_per_node": 2}, [4]),
        ({"ranks": [1, 2, 6]}, [1, 2, 6]),
        ({"ranks": [2, 6]}, [1, 2, 6]),
        ({"ranks": [2, 6], "base": "1"}, [1, 2, 6]),
        ({"ranks": [2, 6], "base": "smallest"}, [2, 6]),
        ({"nodes": [2, 8], "base": "1"}, [8, 32]),
    ],
)
def test_sizes_as_they_were_asked_for(asked, sizes):
    assert list(shape(load_study("weak-scaling", **asked), machine(ranks_per_node=4)).ranks) == sizes


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"nodes": [101]}, "101 nodes on partition regular of somewhere, which allows 100 per job"),
        (
            {"nodes": [4], "partition": "debug"},
            "4 nodes on partition debug of somewhere, which allows 2 per job",
        ),
        ({"partition": "fast"}, "no partition 'fast' on somewhere; choose one of: regular, debug"),
        ({"nodes": [1], "ranks": [1]}, "--ranks and --nodes exclude each other"),
        (
            {"ranks_per_node": 65},
            "65 ranks per node on device cpu of somewhere, whose nodes have room for 64",
        ),
    ],
)
def test_what_a_system_cannot_do_is_one_line(asked, text):
    with pytest.raises(UsageError) as caught:
        shape(load_study("weak-scaling", **asked), machine())
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.sets(st.integers(1, 5000), min_size=1, max_size=20))
def test_sizes_that_are_near_share_jobs_and_neighbouring_jobs_a_size(nodes):
    cuts = tiers(nodes)
    assert {count for cut in cuts for count in cut} == nodes
    for tier in cuts:
        assert tier == sorted(set(tier))
        assert len(tier) <= MOST_SIZES
        assert all(count <= MOST_FACTOR * tier[0] for count in tier[:-1])
    assert all(left[-1] == right[0] for left, right in itertools.pairwise(cuts))
    assert tiers([2**k for k in range(8)]) == [[1, 2, 4, 8], [8, 16, 32, 64], [64, 128]]


def test_a_tier_has_blocks_of_its_own_and_every_block_all_of_its_cells():
    plan = planned(machine(), nodes=[1, 2, 4, 8, 16], launches=6)
    blocks = {}
    for launch in plan.launches:
        blocks.setdefault(launch.cases[0].block, []).append((launch.cell.backend, launch.cell.num_nodes))
    assert list(blocks) == list(range(12))
    for block, found in blocks.items():
        expected = [(b, n) for b in ("none", "ring") for n in ((1, 2, 4, 8) if block < 6 else (8, 16))]
        expected = [place for place in expected if place != ("ring", 1)]
        assert sorted(found) == sorted(expected)
    assert len({tuple(found) for found in blocks.values()}) > 2, "the order is shuffled"
    trainings = [case.id for launch in plan.launches for case in launch.cases if case.cell.control == "train"]
    assert len(set(trainings)) == len(plan.launches)


def test_a_job_has_its_tiers_largest_size():
    plan = planned(machine(), nodes=[1, 2, 4, 8, 16])
    jobs, warnings = jobs_of(plan)
    assert not warnings
    assert [job.num_nodes for job in jobs] == [8, 16]
    assert [launch for job in jobs for launch in job.launches] == list(plan.launches)
    for job in jobs:
        assert job.billed_node_hours == pytest.approx(job.num_nodes * job.seconds / 3600)
        assert job.seconds > 1.25 * plan.seconds(job.launches)


def test_wall_time_cuts_between_blocks_and_keeps_them_whole():
    plan = planned(machine(), nodes=[1, 2, 4], launches=6)
    whole = jobs_of(plan)[0][0].seconds
    limit = whole - 1.25 * plan.seconds(plan.launches[len(plan.launches) // 3 :]) + 1.0
    jobs, warnings = jobs_of(plan, limit=limit)
    assert not warnings
    assert len(jobs) == 3
    assert all(job.seconds <= limit for job in jobs)
    assert [launch for job in jobs for launch in job.launches] == list(plan.launches)
    seen = [{launch.cases[0].block for launch in job.launches} for job in jobs]
    assert all(not (left & right) for left, right in itertools.pairwise(seen))


def test_a_block_that_does_not_fit_is_split_with_a_warning():
    plan = planned(machine(), nodes=[1, 2, 4], launches=2)
    block = plan.launches[: len(plan.launches) // 2]
    limit = 120 + 1.25 * (60 + plan.seconds(block[:3]))
    jobs, warnings = jobs_of(plan, limit=limit)
    assert len(warnings) == 1
    assert "across jobs nothing is paired" in warnings[0]
    assert all(job.seconds <= limit for job in jobs)


def test_a_wall_time_shorter_than_a_case_is_refused():
    plan = planned(machine(), nodes=[1, 2])
    with pytest.raises(UsageError, match=r"a job of 30 s is too short: .* ask for a longer --walltime"):
        jobs_of(plan, limit=30.0)


def test_servers_lie_on_nodes_of_their_own():
    plan = planned(machine(), backends=["grpc_ps"], nodes=[2, 4], launches=1)
    assert {(c.num_ranks, c.num_servers, c.num_nodes) for c in (x.cell for x in plan.launches)} == {
        (2, 1, 3),
        (4, 2, 6),
    }
    assert jobs_of(plan)[0][0].num_nodes == 6


def to_a_target(every, max_seconds):
    target = {"goals": {}, "metric": "auc", "threshold": 0.9, "max_seconds": max_seconds}
    return planned(
        machine(),
        "time-to-solution",
        data=None,
        backends=["ring"],
        nodes=[2],
        launches=1,
        target=target,
        rules={"checkpoint_every": every},
    )


def test_a_training_to_a_target_may_take_several_jobs_where_it_is_saved():
    plan = to_a_target(every=100, max_seconds=9 * 3600.0)
    jobs, warnings = jobs_of(plan, limit=3600)
    assert [job.seconds for job in jobs] == [3600]
    assert (
        f"about {math.ceil(jobs_of(plan)[0][0].seconds / 3600)} jobs, each from the last checkpoint on"
        in warnings[-1]
    )
    assert plan.seconds(plan.launches, to_end=False) < 60
    with pytest.raises(UsageError, match="checkpoints at shorter intervals"):
        jobs_of(to_a_target(every=0, max_seconds=9 * 3600.0), limit=3600)


def test_one_that_ends_before_its_first_checkpoint_needs_no_more_than_that():
    plan = to_a_target(every=10**9, max_seconds=30.0)
    assert plan.seconds(plan.launches, to_end=False) == plan.seconds(plan.launches)


def test_a_partition_that_bills_more_nodes_than_needed_is_told():
    partitions = {"regular": {"num_nodes": fact(100), "min_nodes": fact(16)}}
    plan = planned(machine(), nodes=[1, 2])
    (job,), warnings = cut(plan, plan.launches, machine(partitions=partitions), limit=None)
    assert job.num_nodes == 16
    assert "wall-time limit is unknown" in warnings[0]
    assert warnings[1] == "jobs need at most 2 nodes, and the partition bills at least 16"
