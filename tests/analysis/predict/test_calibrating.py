"""What studies and collectives runs measured between nodes: points of a calibration, steps, and what is refused."""

import json
from dataclasses import replace

import pytest

from dlscale.analysis.load import Study
from dlscale.analysis.predict.calibrating import measured_steps, points_of_run, points_of_study, step_error
from dlscale.analysis.predict.calibration import calibrated
from dlscale.analysis.predict.exchange import NetworkExchange, cost
from dlscale.analysis.predict.prediction import predict_point
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import main
from dlscale.benchmarks.records.message_sizes import MessageSizeRun, add_launch, write_campaign
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.systems.system import load_system
from tests.analysis.made_scenarios import NETWORK, PROFILE, STARTED, allreduces, scenario, with_exchange
from tests.made_records import make_record, profile_record

MIB = 1 << 20
TRUTH = replace(NETWORK, node_bytes_per_second=3e9, latency_seconds=20e-6, reduce_seconds_per_byte=1e-10)
BUCKETS, SMALL = (MIB, 4 * MIB, 25 * MIB), (1 << 10, 8 << 10)


def ring_seconds(num_nodes, size, ranks_per_node=1):
    """Of the ring's exchange: recursive doubling where it is small."""
    algorithm = "ring" if size > 1 << 19 else "recursive_doubling"
    exchange = NetworkExchange(algorithm=algorithm, num_nodes=num_nodes, ranks_per_node=ranks_per_node)
    return cost(TRUTH, exchange).of(size)


def exchanged(nodes, *, per_node=1, slower=1.0, sizes=BUCKETS, **fields):
    """A launch of the ring's buckets alone on several nodes of Cori."""
    named = {"system": "cori", "backend": "ring", "num_ranks": nodes * per_node, "num_nodes": nodes}
    record = make_record(**named | {"control": "exchange"} | fields)
    return with_exchange(record, sizes, [slower * ring_seconds(nodes, size, per_node) for size in sizes])


def allreduced(num_nodes, sizes=SMALL):
    """A launch of allreduces over the ring."""
    return allreduces(num_nodes, {size: [ring_seconds(num_nodes, size)] for size in sizes})


def test_buckets_and_allreduces_of_each_size_on_each_number_of_nodes_are_points():
    records = [
        exchanged(nodes, block=block, sizes=(MIB, 4 * MIB, 4 * MIB)) for nodes in (2, 4) for block in (0, 1)
    ]
    found = points_of_study([*records, exchanged(2, num_nodes=1)], "ring", fingerprint="f" * 12)
    assert [(point.size, point.exchange.algorithm) for point in found] == [
        ((nodes, nodes, size), "ring") for nodes in (2, 4) for size in (MIB, 4 * MIB)
    ]
    assert [point.seconds for point in found] == pytest.approx(
        [ring_seconds(nodes, size) for nodes in (2, 4) for size in (MIB, 4 * MIB)]
    )
    own = allreduces(2, {1024: [1e-4], MIB: [1e-3]}, operation="mpi", backend="mpich", per_node=2)
    assert [
        (point.exchange.algorithm, point.exchange.ranks_per_node) for point in points_of_run([own], "mpi")
    ] == [("recursive_doubling", 2), ("halving_doubling", 2)]
    start = replace(NETWORK, reduce_seconds_per_byte=1e-11)
    together = calibrated(
        [*found, *points_of_run([allreduced(2), allreduced(4)], "ring")], start, source="both"
    )
    assert "8 exchanges of both" in together.network.origins[0].source
    assert together.network.latency_seconds == pytest.approx(TRUTH.latency_seconds, rel=0.1)


def test_launches_and_calls_count_by_their_median():
    steps = [1e-3 + 1e-7 * index for index in range(21)]
    launches = [allreduces(2, {4096: steps}), allreduces(2, {4096: steps}), allreduces(2, {4096: [1.0] * 3})]
    (point,) = points_of_run(launches, "ring")
    assert point.seconds == pytest.approx(1e-3 + 1e-6)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (
            [{}, {"block": 1, "fingerprint": "e" * 12}],
            r"more than one fingerprint \(eeeeeeeeeeee, ffffffffffff\)",
        ),
        (
            [{"fingerprint": "e" * 12}],
            r"more than one fingerprint \(eeeeeeeeeeee, ffffffffffff\)",
        ),  # of the profile
        ([{}, {"block": 1, "system": "local"}], r"more than one system \(cori, local\)"),
        (
            [{}, {"block": 1, "evidence": "emulated"}],
            r"more than one kind of evidence \(emulated, measured\)",
        ),
    ],
)
def test_a_study_that_cannot_calibrate_is_one_line(plan, problem):
    with pytest.raises(UsageError, match=problem) as caught:
        points_of_study([exchanged(2, **fields) for fields in plan], "ring", fingerprint="f" * 12)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("launches", "problem"),
    [
        ([], "no allreduce of it between nodes"),
        ([allreduces(1, {4096: [1.0]}, per_node=2)], "between nodes"),
        ([allreduces(2, {}, failure="no route")], r"\(no route\)"),
        (
            [allreduces(2, {4096: [1.0]}), allreduces(2, {4096: [1.0]}, setting="tuned")],
            r"ring \(default\), ring \(tuned\) did",
        ),
    ],
)
def test_a_run_that_cannot_calibrate_is_one_line(launches, problem):
    with pytest.raises(UsageError, match=problem) as caught:
        points_of_run(launches, "ring")
    assert "\n" not in str(caught.value)


@pytest.fixture
def study(tmp_path):
    """Writes a study's folder: a profile of Cori's nodes, and these records."""

    def write(*records):
        store = Store(tmp_path / "results" / "cori" / "weak-scaling-1")
        store.open({})
        for record in (profile_record(system="cori"), *records):
            store.add(record)
        return store.folder

    return write


@pytest.fixture
def run(tmp_path):
    """Writes a run of `dlscale collectives` on 2 and 4 nodes."""

    def write(title, sizes=SMALL):
        folder = tmp_path / "results" / "collectives" / "20261123"
        facts = {"started": STARTED, "commit": "c", "system": title, "sizes": [1], "rank_counts": [2, 4]}
        rest = {"num_blocks": 1, "cpus": [0], "seed": 1, "node": {}, "peers": []}
        write_campaign(folder, MessageSizeRun.model_validate(facts | rest))
        for num_nodes in (2, 4):
            add_launch(folder, allreduced(num_nodes, sizes))
        return folder

    return write


@pytest.fixture
def predicted(tmp_path, capsys):
    """(exit status, what was printed, what was complained about) of a prediction for Cori."""

    def call(*words):
        asked = ["predict", "weak-scaling", "--system", "cori", "--results", str(tmp_path / "results")]
        with pytest.raises(SystemExit) as ended:
            main([*asked, *words])
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return call


def test_records_of_several_nodes_calibrate_a_prediction(study, predicted, run):
    folder = study(*(exchanged(nodes, block=block) for nodes in (2, 4, 8) for block in range(2)))
    own = ["--from", folder.name, "--backends", "ring,none"]
    both = f"{folder.name},{run(load_system('cori').title)}"
    code, out, err = predicted(*own, "--calibrate", both, "--nodes", "8,512", "--json")
    assert not code, err
    told = {it["input"]: it for it in json.loads(out)["assumptions"] if it["backends"] == "ring"}
    assert told["latency of a message"]["kind"] == "calibrated"
    assert "the largest, held out, is predicted with" in told["latency of a message"]["source"]
    own += ["--calibrate", folder.name, "--nodes"]
    _, out, _ = predicted(*own, "8")
    assert "not modelled: permanently slower ranks and jitter of messages" in out
    code, out, _ = predicted(*own, "1024")
    assert (code, "Not to be trusted: 1024 nodes are more than 64 times" in out) == (0, True)


def test_a_run_is_found_by_path_and_as_the_latest_and_servers_take_the_rings(predicted, run):
    folder = run(None, BUCKETS)
    answers = []
    for name in (str(folder), "collectives"):
        words = ["--calibrate", name, "--nodes", "256", "--backends", "ring,grpc_ps", "--json"]
        code, out, err = predicted(*words)
        assert not code, err
        answers.append(json.loads(out))
    assert answers[0] == answers[1]
    sources = {it["backends"]: it["source"] for it in answers[0]["assumptions"] if it["kind"] == "calibrated"}
    assert "(exchanges of ring)" in sources["grpc_ps"]
    assert "(exchanges of ring)" not in sources["ring"]
    code, _, err = predicted("--calibrate", "collectives", "--nodes", "8", "--backends", "mpi")
    assert (code, "the run has no allreduce of it between nodes" in err) == (1, True)
    assert "no study in" in predicted("--calibrate", "weak-scaling")[2]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"system": "perlmutter"}, "its exchanges are of perlmutter, not of cori"),
        ({"evidence": "emulated"}, "hosts that share one machine"),
        ({"fingerprint": "e" * 12}, "more than one fingerprint (eeeeeeeeeeee, ffffffffffff)"),
        ({"per_node": 2}, "2 ranks per node, the prediction 1; give --set ranks_per_node=2"),
        ({"num_nodes": 1}, "no exchange was measured between nodes"),
    ],
)
def test_exchanges_of_something_else_are_refused_in_one_line(fields, problem, study, predicted, tmp_path):
    folder = study(*(exchanged(nodes, **fields) for nodes in (2, 4)))
    code, _, err = predicted("--from", folder.name, "--calibrate", folder.name, "--nodes", "8")
    (line,) = err.strip().splitlines()
    assert (code, problem in line) == (1, True), line
    assert not list(tmp_path.rglob("predictions"))


def test_a_run_on_another_system_is_refused(predicted, run):
    code, _, err = predicted("--nodes", "8", "--calibrate", str(run("Perlmutter (NERSC)")))
    assert (code, "of Perlmutter (NERSC), not of" in err) == (1, True)


def seconds_of(num_nodes):
    return predict_point(scenario(), num_nodes).step_seconds.center


def test_the_error_is_the_root_mean_square_of_logarithms_and_widens_the_band():
    measured = [(scenario(), 2, seconds_of(2) * 1.1), (scenario(), 4, seconds_of(4) / 1.1)]
    assert step_error(measured) == pytest.approx(0.0953, abs=1e-4)
    assert step_error([]) == 0
    wide = scenario(step_error=0.05, num_replicates=2000)
    point = predict_point(wide, 8).step_seconds
    assert point.center == pytest.approx(seconds_of(8), rel=0.01)
    assert point.high / point.center == pytest.approx(1.0857, rel=0.02)  # exp(1.645 * 0.05)
    alone = predict_point(wide, 1).step_seconds
    assert alone.low == alone.high


def test_trainings_of_the_same_scenario_between_nodes_are_found():
    trained = replace(PROFILE, preset="tiny", local_batch=8)

    def record(num_ranks, **fields):
        return make_record(**{"backend": "gloo", "num_ranks": num_ranks, "num_nodes": num_ranks, **fields})

    records = [
        record(2, samples_per_second=16 / 0.4),
        record(2, samples_per_second=16 / 0.5, block=1),
        record(4, samples_per_second=32 / 0.6),
        record(1, num_nodes=1),
        record(2, num_nodes=1),
        record(2, backend="ring"),
        record(2, control="exchange"),
        record(2, local_batch=4),
        record(2, backend_options={"bucket_cap_mb": 5}),
        record(4, failure="gone", block=2),
    ]
    own = scenario(profile=trained, batch=8)
    assert sorted(
        (nodes, round(seconds, 3)) for _, nodes, seconds in measured_steps(own, Study(records))
    ) == [(2, 0.45), (4, 0.6)]
    served = [
        record(2, backend="grpc_ps", num_nodes=3, num_servers=1, samples_per_second=16 / 0.5),
        record(2, backend="grpc_ps", num_nodes=4, num_servers=2, samples_per_second=16 / 0.6),
    ]
    ((_, nodes, seconds),) = measured_steps(scenario("grpc_ps", profile=trained, batch=8), Study(served))
    assert (nodes, seconds) == (2, pytest.approx(0.5))
