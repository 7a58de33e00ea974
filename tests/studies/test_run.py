"""A study from the command to the figures, and again."""

import json
from collections import Counter

import pytest

from dlscale.base import strings
from dlscale.benchmarks.records.record import Record
from tests.made_records import rows_of
from tests.studies.conftest import STUDY

pytestmark = [pytest.mark.requires("mpiexec", "ring"), pytest.mark.timeout(300)]


@pytest.mark.any_mpi
def test_a_study_from_command_to_figures(bench):
    study = STUDY.replace('"loader"', '"loader", "exchange", "profile"')
    bench.study.write_text(study.replace('"mpi", "gloo", ', ""))
    dry = bench.run("--dry-run")
    assert dry.returncode == 0
    commands = [line for line in dry.stdout.splitlines() if "mpiexec" in line]
    assert all("-m dlscale.benchmarks.rank.worker" in line for line in commands)
    assert not bench.record_files()

    done = bench.run(cwd=bench.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (*bench.record_files(), *bench.folder.glob("results/*/*/study.json")):
        assert strings.CHECKOUT not in path.read_text()
    records = bench.records()
    assert all(record.good for record in records)
    cells = Counter((r.case.cell.backend, r.case.cell.num_ranks, r.case.cell.control) for r in records)
    expected = {("none", 1, "train"): 1, ("none", 2, "train"): 1, ("ring", 2, "train"): 1}
    expected |= {("none", n, control): 1 for control in ("synthetic", "loader") for n in (1, 2)}
    expected |= {("ring", 2, "exchange"): 1, ("none", 1, "profile"): 1}
    assert cells == expected
    for record in records:
        check_record(record)
    assert Counter(map(num_started, commands)) == Counter(
        num_started(command) for command in {record.command for record in records}
    )
    for name in ("throughput", "efficiency"):
        for suffix in ("png", "pdf", "svg", "csv"):
            assert list(bench.folder.glob(f"results/*/*/figures/*{name}.{suffix}"))
    assert "samples/s" in done.stdout
    assert not list(bench.folder.glob("results/*/*/spool/*"))

    # Report and status read the records alone.
    report = bench.ask("report", "--json")
    assert report.returncode == 4, "one launch cannot carry an interval"
    table = json.loads(report.stdout)
    assert table["schema"] == 2
    assert {row["control"] for row in table["scaling"]} == {"train", "synthetic", "loader"}
    status = bench.ask("status", "--json")
    assert status.returncode == 0
    (row,) = json.loads(status.stdout)["rows"]
    assert (row["cases"], row["done"], row["failed"]) == (len(records), len(records), 0)

    # The same command again measures only what is missing: an exchange alone, which finds the buckets of its training,
    # that is done, by a trainer of its own.
    files = {path: path.read_bytes() for path in bench.record_files()}
    (lost,) = (path for path in files if "ring-2r-exchange" in path.name)
    before = Record.model_validate_json(files.pop(lost))
    lost.unlink()
    again = bench.run()
    assert again.returncode == 0
    assert "figures:" in done.stdout
    assert "1 launch, 1 case are left" in again.stdout
    assert Record.model_validate_json(lost.read_text()).bucket_bytes == before.bucket_bytes
    assert {path: path.read_bytes() for path in files} == files


def num_started(command):
    """The ranks that a command starts."""
    return command.split(" -n ")[1].split()[0]


def check_record(record):
    cell = record.case.cell
    assert record.evidence == "measured"
    assert [facts.rank for facts in record.ranks] == list(range(cell.num_ranks))
    assert all(len(facts.affinity) == cell.cores_per_rank for facts in record.ranks)
    assert all(facts.peak_rss_bytes > 50e6 for facts in record.ranks)
    if cell.control in ("train", "synthetic"):  # in float32, with Adam's two moments
        num_bytes = 4 * cell.preset_facts.num_parameters
        held = [(kept.parameters, kept.optimizer) for facts in record.ranks if (kept := facts.state_bytes)]
        assert all(parameters == num_bytes and optimizer >= 2 * num_bytes for parameters, optimizer in held)
        assert len(held) == cell.num_ranks
    if cell.num_ranks == 2 and not record.oversubscribed:
        assert not set(record.ranks[0].affinity) & set(record.ranks[1].affinity)
    steady = rows_of(record.counted)
    assert len(steady) >= 3
    for window in rows_of(record.windows):
        assert len(window.seconds) == len(window.start_seconds) == cell.num_ranks
        assert all(seconds > 0 for seconds in window.seconds)
    if cell.control == "exchange":
        assert "exchange" in {gate.name for gate in record.gates}
        assert all(len(found) == len(record.bucket_bytes) for found in steady[0].bucket_seconds)
    elif cell.control == "profile":
        assert "finite_loss" in {gate.name for gate in record.gates}
        assert len(record.profile.stamped_seconds) >= 200
        assert record.profile.forward[0].median < record.profile.gradients[0].ready.median
    elif cell.control != "loader":
        names = {gate.name for gate in record.gates}
        assert {"audit_step", "audit_scale", "audit_window", "audit_samples"} <= names
        assert names >= ({"gradient", "finite_loss"} if cell.backend == "none" else {"broadcast", "identity"})
    if cell.backend == "none" and cell.control == "train":
        assert all(len(window.step_seconds[0]) == window.num_steps for window in steady)
    text = record.model_dump_json()
    assert "/root" not in text
    assert "/home" not in text


@pytest.mark.nightly
def test_more_ranks_than_cores_is_allowed_warned_and_recorded(bench):
    import os

    num_ranks = len(os.sched_getaffinity(0)) + 1
    done = bench.run("--backends", "ring", "--ranks", f"1,{num_ranks}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"warning: {num_ranks} ranks share" in done.stdout
    assert {r.case.cell.num_ranks: r.oversubscribed for r in bench.records()} == {1: False, num_ranks: True}
