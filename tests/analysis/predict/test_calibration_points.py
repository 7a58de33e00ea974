"""Points of a calibration from records and from runs of the message-size benchmark."""

import numpy as np
import pytest

from dlscale.analysis.predict.calibration import calibrated
from dlscale.analysis.predict.calibration_records import points_of_run, points_of_study
from dlscale.analysis.predict.network import Network
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, Samples
from dlscale.benchmarks.records.record import Configuration, Window

MIB = 1 << 20
LATENCY, RATE = 50e-6, 1e9
START = Network(
    name="emulated",
    num_nodes=16,
    node_bytes_per_second=5e9,
    latency_seconds=5e-6,
    node_memory_bytes_per_second=1e10,
    reduce_seconds_per_byte=1e-11,
)


def ring_seconds(num_nodes, num_bytes):
    return 2 * (num_nodes - 1) * (LATENCY + num_bytes / num_nodes / RATE)


@pytest.fixture
def exchange(make_record):
    """A launch of control `exchange` of a ring between nodes of one rank each."""

    def make(num_ranks, *, sizes=(MIB, 4 * MIB, 4 * MIB), **fields):
        fields = {"backend": "gloo", "num_ranks": num_ranks, "num_nodes": num_ranks, **fields}
        record = make_record(control="exchange", **fields)
        if record.failure:
            return record
        each = [[5 * ring_seconds(num_ranks, size) for size in sizes]] * num_ranks
        window = Window(
            phase="steady",
            num_steps=5,
            start_seconds=[0.0] * num_ranks,
            seconds=[sum(row) for row in each],
            bucket_seconds=each,
        )
        return record.model_copy(update={"windows": [window] * 3, "bucket_bytes": list(sizes)})

    return make


def run_launch(num_nodes, sizes, *, block=0, operation="gloo", backend="gloo", per_node=1, **more):
    samples = [
        Samples(
            operation=operation,
            message_bytes=size,
            round=0,
            num_warmup=1,
            nanoseconds=[[round(1e9 * ring_seconds(num_nodes, size))] * 3] * (num_nodes * per_node),
            spread_nanoseconds=[0] * 3,
        )
        for size in sizes
    ]
    return MessageSizeLaunch(
        **{
            "purpose": "measured",
            "block": block,
            "position": 0,
            "backend": backend,
            "setting": "default",
            "variables": {},
            "thread_level": "single",
            "num_ranks": num_nodes * per_node,
            "num_nodes": num_nodes,
            "program": "dlscale",
            "command": "mpiexec",
            "started": "2026-11-20T10:00:00+00:00",
            "seconds": 1.0,
            "samples": samples,
        }
        | more
    )


def test_buckets_of_each_size_on_each_number_of_nodes_are_points(exchange):
    records = [exchange(num_nodes, block=block) for num_nodes in (2, 4) for block in range(3)]
    found = points_of_study(records, "gloo", fingerprint="f" * 12)
    assert [(point.size, point.exchange.algorithm) for point in found] == [
        ((2, 2, MIB), "ring"),
        ((2, 2, 4 * MIB), "ring"),
        ((4, 4, MIB), "ring"),
        ((4, 4, 4 * MIB), "ring"),
    ]
    assert [point.seconds for point in found] == pytest.approx(
        [ring_seconds(n, size) for n in (2, 4) for size in (MIB, 4 * MIB)]
    )


def test_a_study_and_a_run_together_calibrate_a_network(exchange):
    launches = [run_launch(num_nodes, (4096, 65536)) for num_nodes in (2, 4)]
    records = [exchange(2), exchange(4)]
    measured = points_of_study(records, "gloo") + points_of_run(launches, "gloo")
    found = calibrated(measured, START, source="weak-scaling")
    assert found.num_points == 8
    assert found.network.latency_seconds == pytest.approx(LATENCY, rel=0.02)
    assert found.network.node_bytes_per_second == pytest.approx(RATE, rel=0.05)
    assert abs(found.held_out_error) < 0.02


def test_one_node_gives_no_points(exchange):
    assert points_of_study([exchange(2, num_nodes=1)], "gloo") == []


def test_algorithms_follow_the_backend_and_the_size():
    launches = [run_launch(2, (1024, MIB), operation="mpi", backend="mpich", per_node=2)]
    found = points_of_run(launches, "mpi")
    assert [(point.exchange.algorithm, point.exchange.ranks_per_node) for point in found] == [
        ("recursive_doubling", 2),
        ("halving_doubling", 2),
    ]


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ([], "the study has no exchange of it"),
        ([{"backend": "ring"}], "the study has no exchange of it"),
        ([{"failure": "no partner"}], r"none of 1 exchanges is good \(no partner\)"),
        ([{}, {"block": 1, "fingerprint": "e" * 12}], "fingerprints eeeeeeeeeeee, ffffffffffff differ"),
        ([{}, {"block": 1, "system": "cori"}], "records of cori, local"),
    ],
)
def test_a_study_that_cannot_calibrate_is_one_line(exchange, plan, problem):
    with pytest.raises(UsageError, match=problem) as caught:
        points_of_study([exchange(2, **fields) for fields in plan], "gloo")
    assert "\n" not in str(caught.value)


def test_the_profile_must_be_of_the_same_code(exchange):
    with pytest.raises(UsageError, match="fingerprints aaaa, ffffffffffff differ"):
        points_of_study([exchange(2)], "gloo", fingerprint="aaaa")


@pytest.mark.parametrize(
    ("launches", "problem"),
    [
        ([], "no allreduce of it between nodes"),
        ([run_launch(2, (4096,)).model_copy(update={"num_nodes": 1})], "between nodes"),
        ([run_launch(2, (4096,), samples=[], failure="no route")], r"\(no route\)"),
        (
            [run_launch(2, (4096,)), run_launch(2, (4096,), setting="tuned")],
            r"gloo \(default\), gloo \(tuned\) did",
        ),
    ],
)
def test_a_run_that_cannot_calibrate_is_one_line(launches, problem):
    with pytest.raises(UsageError, match=problem) as caught:
        points_of_run(launches, "gloo")
    assert "\n" not in str(caught.value)


def test_versions_that_differ_are_named(exchange):
    old, new = exchange(2), exchange(2, block=1, fingerprint="e" * 12)
    newer = new.fingerprint.model_copy(update={"versions": {"torch": "3"}})
    with pytest.raises(UsageError, match=r"eeeeeeeeeeee, ffffffffffff differ: torch 2 and 3; calibrate"):
        points_of_study([old, new.model_copy(update={"fingerprint": newer})], "gloo")


def test_emulated_links_of_two_rates_are_no_one_network(exchange):
    def linked(block, rate):
        configuration = Configuration(
            study_digest="s",
            system_digest="m",
            skip_bad=False,
            budget_seconds=None,
            rules={},
            fabric={"bandwidth": rate},
            emulation={"queue": 1e6},
        )
        record = exchange(2, block=block, evidence="emulated")
        return record.model_copy(update={"configuration": configuration})

    assert points_of_study([linked(0, 25e6), linked(1, 25e6)], "gloo")
    with pytest.raises(
        UsageError, match=r"bandwidth=25000000.0, queue=.*; give a study of one kind of links"
    ):
        points_of_study([linked(0, 25e6), linked(1, 50e6)], "gloo")
    with pytest.raises(
        UsageError, match="records of emulated, measured; give a study of one kind of evidence"
    ):
        points_of_study([linked(0, 25e6), exchange(2, block=1)], "gloo")


def test_single_calls_say_how_they_spread():
    calls = [round(1e9 * ring_seconds(2, 4096)) + 100 * index for index in range(21)]
    launch = run_launch(2, (4096,))
    (samples,) = launch.samples
    update = {"nanoseconds": [calls, calls[:1] * 21], "spread_nanoseconds": [0] * 21}
    found = points_of_run(
        [launch.model_copy(update={"samples": [samples.model_copy(update=update)]})], "gloo"
    )
    assert [point.spread for point in found] == [pytest.approx(1e-6)]  # 5 and 15 of 20 steps of 100 ns
    assert [point.spread for point in points_of_run([launch], "gloo")] == [
        None
    ]  # of 3 calls nothing is known


def test_launches_count_by_their_median():
    launches = [run_launch(2, (MIB,), block=block) for block in range(3)]
    slow = launches[0].model_copy(
        update={
            "samples": [
                block.model_copy(update={"nanoseconds": (50 * np.array(block.nanoseconds)).tolist()})
                for block in launches[0].samples
            ]
        }
    )
    (point,) = points_of_run([slow, *launches[1:]], "gloo")
    assert point.seconds == pytest.approx(ring_seconds(2, MIB), rel=1e-6)
