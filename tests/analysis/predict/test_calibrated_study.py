"""`dlscale predict --from STUDY --calibrate STUDY,RUN` on the files of records that several nodes left."""

import json

import numpy as np
import pytest

from dlscale.analysis.predict.calibration_records import points_of_study
from dlscale.analysis.predict.exchange import NetworkExchange
from dlscale.analysis.predict.loggp import cost, drawn_jitter
from dlscale.analysis.predict.network import Network
from dlscale.benchmarks.cli import calibration, main
from dlscale.benchmarks.launch.configuration import stated_emulation, stated_fabric
from dlscale.benchmarks.records.message_sizes import (
    MessageSizeLaunch,
    MessageSizeRun,
    Samples,
    add_launch,
    write_campaign,
)
from dlscale.benchmarks.records.record import Configuration, Window
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.systems.system import load_system

TRUTH = Network(
    name="truth",
    num_nodes=1000,
    node_bytes_per_second=3e9,
    latency_seconds=20e-6,
    node_memory_bytes_per_second=1e11,
    reduce_seconds_per_byte=1e-10,
    message_jitter_seconds=10e-6,
)
BUCKETS = (1 << 20, 4 << 20, 25 << 20)
SMALL = (1 << 10, 8 << 10)


def ring_seconds(num_nodes, size, ranks_per_node=1):
    """What our ring takes: recursive doubling up to 16 KiB."""
    exchange = NetworkExchange(
        algorithm="ring" if size > 1 << 19 else "recursive_doubling",
        num_nodes=num_nodes,
        ranks_per_node=ranks_per_node,
    )
    return exchange, cost(TRUTH, exchange).of(size)


@pytest.fixture
def exchange_record(make_record):
    """A launch of the ring's buckets alone on several nodes of Cori."""

    def make(nodes, *, per_node=1, slower=1.0, **fields):
        each = [5 * slower * ring_seconds(nodes, size, per_node)[1] for size in BUCKETS]
        count = nodes * per_node
        named = {"system": "cori", "backend": "ring", "control": "exchange"}
        record = make_record(**named | {"num_ranks": count, "num_nodes": nodes} | fields)
        window = Window(
            phase="steady",
            num_steps=5,
            start_seconds=[0.0] * count,
            seconds=[sum(each)] * count,
            bucket_seconds=[each] * count,
        )
        return record.model_copy(update={"windows": [window] * 3, "bucket_bytes": list(BUCKETS)})

    return make


@pytest.fixture
def study(tmp_path, profile_record):
    """Writes a study's folder: a profile of Cori's nodes, and these records."""

    def write(*records):
        store = Store(tmp_path / "cori" / "weak-scaling-1")
        store.open({})
        for record in (profile_record(system="cori"), *records):
            store.add(record)
        return store.folder

    return write


def write_run(folder, *, title="Cori"):
    """A run of `dlscale collectives` on 2 and 4 nodes, whose messages are late."""
    campaign = MessageSizeRun(
        started="2026-11-23T10:00:00+00:00",
        commit="c",
        system=title,
        ranks_per_node=1,
        sizes=list(SMALL),
        rank_counts=[2, 4],
        num_blocks=1,
        cpus=[0],
        budget_seconds=1.0,
        seed=1,
        node={},
        peers=[],
    )
    write_campaign(folder, campaign)
    for position, num_nodes in enumerate((2, 4)):
        samples = []
        for size in SMALL:
            exchange, seconds = ring_seconds(num_nodes, size)
            rng = np.random.default_rng(size)
            late = drawn_jitter(TRUTH, exchange, num_bytes=size, rng=rng, num_draws=400)
            calls = [round(1e9 * (seconds + own)) for own in late]
            samples.append(
                Samples(
                    operation="ring",
                    message_bytes=size,
                    round=0,
                    num_warmup=1,
                    nanoseconds=[calls] * num_nodes,
                    spread_nanoseconds=[0] * len(calls),
                )
            )
        launch = MessageSizeLaunch(
            purpose="measured",
            block=0,
            position=position,
            backend="ring",
            setting="default",
            variables={},
            thread_level="single",
            num_ranks=num_nodes,
            num_nodes=num_nodes,
            program="dlscale",
            command="srun",
            started="2026-11-23T10:00:00+00:00",
            seconds=1.0,
            samples=samples,
        )
        add_launch(folder, launch)
    return folder


@pytest.fixture
def predicted(tmp_path, capsys):
    """(exit status, what was printed, what was complained about) of a prediction for Cori from a folder."""

    def run(folder, *words, calibrate=None):
        asked = ["predict", "weak-scaling", "--system", "cori", "--replicates", "100"]
        asked += ["--from", str(folder), "--calibrate", calibrate or str(folder), "--backends", "ring"]
        with pytest.raises(SystemExit) as ended:
            main([*asked, "--results", str(tmp_path / "results"), *words])
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run


def test_records_of_several_nodes_calibrate_a_prediction(study, exchange_record, predicted, tmp_path):
    folder = study(*(exchange_record(nodes, block=block) for nodes in (2, 4, 8) for block in range(2)))
    run = write_run(tmp_path / "run", title=load_system("cori").title)
    words = ["--nodes", "8,512", "--json"]
    code, out, err = predicted(folder, *words, calibrate=f"{folder},{run}")
    assert not code, err
    rows = json.loads(out)["rows"]
    assert {row["calibrated_nodes"] for row in rows} == {8}
    assert abs(rows[0]["held_out_error"]) < 0.05
    assert "messages are late by" in rows[0]["noise"]
    late = float(rows[0]["noise"].partition("messages are late by ")[2].split()[0])
    assert late == pytest.approx(10, rel=0.15)  # us
    code, out, _ = predicted(folder, "--nodes", "8")
    (line,) = (line for line in out.splitlines() if "held out" in line)
    assert "9 points of weak-scaling-1" in line
    assert "not measured: jitter of messages (no calls are timed one by one" in line
    code, _, err = predicted(folder, "--nodes", "1024")
    assert (code, "1024 nodes are more than 64 times the 8 of the calibration" in err) == (1, True)
    code, out, _ = predicted(folder, "--nodes", "1024", "--force")
    assert (code or 0, "not to be trusted: 1024 nodes are more than 64 times" in out) == (0, True)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"system": "perlmutter"}, "its exchanges are of perlmutter, not of cori"),
        ({"evidence": "emulated"}, "its nodes share one machine"),
        ({"fingerprint": "e" * 12}, "fingerprints eeeeeeeeeeee, ffffffffffff differ"),
        ({"per_node": 2}, "its exchanges have 2 ranks per node, the prediction 1; give --ranks-per-node 2"),
        ({"num_nodes": 1}, "no exchange was measured between nodes"),
        ({"slower": 2.0}, None),
    ],
)
def test_exchanges_of_something_else_are_refused_in_one_line(
    fields, problem, study, exchange_record, predicted, tmp_path
):
    folder = study(*(exchange_record(nodes, **fields) for nodes in (2, 4)))
    code, _, err = predicted(folder, "--nodes", "8", "--json")
    if problem is None:
        assert not code, err
        return
    assert code == 1
    (line,) = err.strip().splitlines()
    assert problem in line
    assert not (tmp_path / "results").exists()


def test_a_run_on_another_system_is_refused(study, exchange_record, predicted, tmp_path):
    folder = study(exchange_record(2))
    run = write_run(tmp_path / "run", title="Perlmutter (NERSC)")
    code, _, err = predicted(folder, "--nodes", "8", calibrate=str(run))
    assert (code, "of Perlmutter (NERSC), not of" in err) == (1, True)


def test_emulated_links_are_known_by_what_they_were_set_to(exchange_record):
    four, eight, real = (load_system(name) for name in ("emulated-4", "emulated-8", "cori"))
    configuration = Configuration(
        study_digest="s",
        system_digest="m",
        skip_bad=False,
        budget_seconds=None,
        rules={},
        fabric=stated_fabric(four),
        emulation=stated_emulation(four),
    )
    record = exchange_record(2, system="emulated-4", evidence="emulated")
    record = record.model_copy(update={"configuration": configuration})
    assert points_of_study([record], "ring")
    calibration._check_record(record, eight, "a study")
    faster = configuration.model_copy(update={"fabric": configuration.fabric | {"bandwidth": 5e7}})
    for other, machine, problem in [
        (record.model_copy(update={"configuration": faster}), eight, "bandwidth 50000000.0, not 25000000.0"),
        (record, real, "its exchanges are of emulated-4, not of cori"),
    ]:
        with pytest.raises(calibration.UsageError, match=problem):
            calibration._check_record(other, machine, "a study")
