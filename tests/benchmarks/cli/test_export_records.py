"""Records in other tools' formats, read as those tools read them."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from dlscale.analysis.records import world_step_seconds
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import export as exports
from dlscale.benchmarks.exports.mllog import log_text
from dlscale.benchmarks.records.record import Failure, Record
from tests.made_records import make_record, write_study


@pytest.fixture
def study(tmp_path):
    """Writes records as a study's folder below tmp_path."""

    def write(*records: Record) -> Path:
        return write_study(tmp_path / "local" / "weak-scaling-1a2b3c4d", records)

    return write


@pytest.fixture
def export(tmp_path):
    def run(command: click.Command, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(
            command, [*words, "--results", str(tmp_path)], standalone_mode=False, catch_exceptions=False
        )
        return done.return_value, done.stdout

    return run


def launches(rates, **fields):
    return [make_record(block=block, samples_per_second=rate, **fields) for block, rate in enumerate(rates)]


@pytest.fixture
def events(tmp_path):
    """Gives the events of a record's log, in order, as the compliance checker of MLPerf Training 6.0 reads them."""

    def read(record: Record, rates: Sequence[float] = ()) -> list[dict[str, Any]]:
        from mlperf_logging.compliance_checker.mlp_parser import parse_file

        path = tmp_path / "one.log"
        path.write_text(log_text(record, rates))
        lines, errors = parse_file(str(path), ruleset="6.0.0")
        assert not errors
        found = [json.loads(line.full_string.removeprefix(":::MLLOG ")) for line in lines]
        assert [event["time_ms"] for event in found] == sorted(event["time_ms"] for event in found)
        return found

    return read


@pytest.mark.requires("mlperf_logging")
class TestMllog:
    def test_a_run_begins_and_ends(self, events):
        record = make_record(num_ranks=2, backend="ring")
        found = events(record, [100.0] * 10)
        keys = [event["key"] for event in found]
        assert keys[0] == "init_start"
        assert keys[-13:] == ["init_stop", "run_start", *["tracked_stats"] * 10, "run_stop"]
        assert found[-1]["metadata"]["status"] == "success"
        assert not [key for key in keys if key.startswith("submission")]

    def test_it_has_what_the_record_has(self, events):
        record = make_record(num_ranks=4, backend="ring", num_nodes=2, num_servers=1)
        found = {event["key"]: event for event in events(record)}
        values = {key: event["value"] for key, event in found.items() if event["value"] is not None}
        assert values == {
            "seed": record.order_seed,
            "global_batch_size": 32,
            "number_of_nodes": 2,
            "number_of_ranks": 4,
            "accelerators_per_node": 0,
        }
        assert found["number_of_ranks"]["metadata"]["servers"] == 1
        assert found["init_start"]["metadata"]["case"] == record.case.id

    def test_each_rank_on_a_gpu_has_one(self, events):
        record = make_record(num_ranks=4, num_nodes=2, device="gpu")
        nodes = ["a", "a", "a", "b"]
        ranks = [
            rank.model_copy(update={"node": node}) for rank, node in zip(record.ranks, nodes, strict=True)
        ]
        record = record.model_copy(update={"ranks": ranks})
        assert [e["value"] for e in events(record) if e["key"] == "accelerators_per_node"] == [3]
        nobody = record.model_copy(update={"ranks": []})
        assert not [e for e in events(nobody) if e["key"] == "accelerators_per_node"]

    def test_times_are_the_records(self, events):
        record = make_record(samples_per_second=100.0)  # 5 steps of 8 samples: 0.4 s
        phases = record.phases.model_copy(update={"start_up": [2.5], "import_backend": [0.25]})
        record = record.model_copy(update={"phases": phases, "started_at": "2026-11-21T07:00:00+00:00"})
        times = {event["key"]: event["time_ms"] / 1000 - 1795244400 for event in events(record)}
        assert times["init_start"] == 0
        assert times["run_start"] == pytest.approx(2.5 + 0.25 + 1 + 1)  # connect and gates take 1 s each
        assert times["run_stop"] == pytest.approx(4.75 + 0.4)

    def test_throughput_is_that_of_each_window(self, study, export):
        record = make_record(num_ranks=2, window_factors=(1.0, 2.0) * 5, rank_delays=(0.0, 0.8))
        folder = study(record)
        status, text = export(exports.mllog)
        assert (status, text) == (0, f"1 logs in {folder / 'mllog'}\n")
        log = (folder / "mllog" / f"{record.case.id}.1.log").read_text().splitlines()
        stats = [json.loads(line.removeprefix(":::MLLOG ")) for line in log if "tracked_stats" in line]
        assert [stat["value"]["throughput"] for stat in stats] == pytest.approx(
            16 / world_step_seconds(record)
        )
        steps = [stat["metadata"]["step"] for stat in stats]
        assert steps == list(range(6, 56, 5))  # after 1 of the warm-up

    def test_what_never_began_has_no_run(self, events):
        record = make_record(failure="a rank died")
        found = events(record)
        assert not [event for event in found if event["key"].startswith(("run", "init_stop", "tracked"))]
        assert found[0]["metadata"]["failure"] == "hang"

    def test_a_phase_that_was_not_reached_is_not_made_up(self, events):
        record = make_record(num_ranks=2)
        phases = record.phases.model_copy(update={"connect": [1.0, None]})
        keys = [event["key"] for event in events(record.model_copy(update={"phases": phases}))]
        assert "run_start" not in keys

    def test_a_failed_gate_aborts_and_has_no_throughput(self, study, export):
        failure = Failure(kind="gate", rank=None, message="weights differ")
        record = make_record().model_copy(update={"failure": failure})
        folder = study(record)
        export(exports.mllog, "--out", str(folder / "logs"))
        log = (folder / "logs" / f"{record.case.id}.1.log").read_text()
        assert '"status": "aborted"' in log
        assert "tracked_stats" not in log

    def test_it_names_no_folder_of_this_machine(self, events):
        files = {event["metadata"]["file"] for event in events(make_record())}
        assert files == {"benchmarks/exports/mllog.py"}


def test_without_the_package_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("mlperf_logging")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlperf_logging", None)
    with pytest.raises(UsageError, match=r"pip install 'dlscale\[mllog\]'"):
        log_text(make_record(), [])
