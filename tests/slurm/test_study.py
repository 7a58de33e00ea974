"""A study on a real scheduler: submitted, killed, cancelled, the controller restarted, and resumed to its end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlscale.benchmarks.records.record import Record
from tests.processes import wait_for

pytestmark = [
    pytest.mark.requires("slurm", "root", "ring", "hydra"),
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")
STUDY = """
name = "tiny"
title = "Tiny study"
scaling_mode = "weak"
workloads = ["hep_cnn"]
frameworks = ["torch"]
backends = ["ring"]
preset = "tiny"
precision = "fp32"
nodes = [2]
launches = 2
budget = 1
[rules]
warmup_steps = 10
min_windows = 3
min_window_seconds = 0.01
min_steps = 3
"""


def dlscale(cluster, *words):
    return subprocess.run(
        [DLSCALE, *words],
        env=cluster.variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=cluster.folder,
    )


def run(cluster, *words):
    study = cluster.folder / "tiny.toml"
    study.write_text(STUDY)
    return dlscale(cluster, "run", str(study), "--system", str(cluster.system), "--data", "synthetic", *words)


def folder_of(results, study="tiny"):
    (folder,) = results.glob(f"testbed/{study}-*")
    return folder


def done_and_planned(cluster, results):
    """Cases, as `status` counts them."""
    (row,) = json.loads(dlscale(cluster, "status", "--results", str(results), "--json").stdout)["rows"]
    return row["done"], row["cases"]


def records_of(results, study="tiny"):
    paths = sorted((folder_of(results, study) / "records").glob("*.json"))
    return [Record.model_validate_json(path.read_bytes()) for path in paths]


def began(results, job):
    path = folder_of(results) / "jobs" / f"{job}.jsonl"
    return path.exists() and '"begin"' in path.read_text()


def process_of(results, job):
    """The process id of a job's program."""
    words = f"dlscale.benchmarks.jobs.allocation\0{folder_of(results)}\0{job}".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words in path.read_bytes():
                return int(path.parent.name)
        except OSError:
            continue
    return None


def idle(cluster):
    return not cluster.slurm("squeue", "--noheader").strip()


def test_what_slurm_refuses_is_one_line_and_nothing_is_lost(cluster):
    text = cluster.system.read_text()
    wrong = cluster.folder / "wrong.toml"
    wrong.write_text(text.replace("--partition=regular", "--constraint=haswell"))
    study = cluster.folder / "tiny.toml"
    study.write_text(STUDY)
    elsewhere = str(cluster.folder / "elsewhere")
    done = dlscale(
        cluster, "run", str(study), "--system", str(wrong), "--data", "synthetic", "--results", elsewhere
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("dlscale: sbatch refused")
    assert "feature" in line
    assert done_and_planned(cluster, elsewhere) == (0, 2)
    assert "job-000: never submitted" in dlscale(cluster, "status", "--results", elsewhere).stdout


def test_what_costs_too_much_is_not_submitted(cluster):
    done = run(cluster, "--set", "max_node_hours=0.001")
    assert done.returncode == 1
    assert "more than max_node_hours = 0.001" in done.stderr
    assert idle(cluster)


def test_a_study_survives_a_killed_job_a_cancelled_one_and_another_controller(cluster, tmp_path):
    results = tmp_path / "results"
    words = ["--nodes", "1,2", "--launches", "2", "--walltime", "205s"]  # a job for each block
    done = run(cluster, "--results", str(results), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "submitted job-000 as job " in done.stdout
    assert "submitted job-001 as job " in done.stdout

    wait_for(lambda: records_of(results), "a record of the first job")
    os.kill(process_of(results, "job-000"), signal.SIGKILL)
    wait_for(lambda: began(results, "job-001"), "the second job")
    jobs = folder_of(results) / "jobs"
    cluster.slurm("scancel", (jobs / "job-001.id").read_text().strip())
    wait_for(lambda: idle(cluster), "an empty queue")
    cluster.end("slurmctld")
    cluster.start_controller()
    cluster.wait_until_idle()

    status = dlscale(cluster, "status", "--results", str(results))
    assert "job-000: vanished" in status.stdout
    assert "stopped by the scheduler or by hand" in status.stdout

    done = dlscale(cluster, "resume", "--results", str(results))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "submitted job-002 as job " in done.stdout
    again = dlscale(cluster, "resume", "--results", str(results))
    assert "nothing to submit: the remaining cases are already queued or running" in again.stdout
    wait_for(lambda: idle(cluster), "the resumed jobs", seconds=400)

    records = records_of(results)
    trained = [record for record in records if record.case.cell.control == "train"]
    good = [record for record in trained if record.good]
    sizes = sorted((r.case.cell.num_nodes, r.evidence) for r in good)
    assert sizes == [(1, "measured")] * 2 + [(2, "emulated")] * 2
    assert {record.failure.kind for record in records if not record.good} <= {"interrupted"}

    assert done_and_planned(cluster, results) == (4, 4)
    report = dlscale(cluster, "report", "--full", "--results", str(results))
    assert report.returncode == 4, report.stdout + report.stderr  # two launches are too few for intervals
    nothing = dlscale(cluster, "resume", "--results", str(results))
    assert "nothing to submit: all cases are done" in nothing.stdout


@pytest.mark.nightly
def test_torchrun_starts_the_ranks_of_a_job(cluster, tmp_path):
    """On one node: Slurm's names of nodes mean nothing to the network here."""
    elsewhere = tmp_path / "results"
    done = run(
        *(cluster, "--results", str(elsewhere), "--backends", "gloo", "--nodes", "1", "--launches", "1"),
        *("--set", "launcher=torchrun"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(lambda: idle(cluster), "the job")
    records = records_of(elsewhere)
    assert records
    for record in records:
        assert record.good, record.failure
        assert " srun --nodes=1 --ntasks=1 " in record.command
        assert " agent " in record.command


def test_a_requeued_job_goes_on_with_a_training_to_a_target(cluster, tmp_path):
    """What a preemption does: the job is stopped, queued again under its number, and started again.

    The training ends when its time is over, counted over both starts.
    """
    elsewhere = tmp_path / "results"
    done = dlscale(
        *(cluster, "run", "time-to-solution", "--system", str(cluster.system), "--results", str(elsewhere)),
        *("--backends", "ring", "--nodes", "2", "--launches", "1", "--set", "rules.checkpoint_every=5"),
        *("--target", "auc=1.0", "--set", "target.evaluate_samples=320", "--set", "target.max_seconds=10s"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = folder_of(elsewhere, "time-to-solution")
    wait_for(lambda: list(folder.glob("checkpoints/*/step-*.safetensors")), "a checkpoint")
    job = (folder / "jobs" / "job-000.id").read_text().strip()
    cluster.slurm("scontrol", "requeue", job)
    wait_for(
        lambda: "PENDING" in cluster.slurm("squeue", "--noheader", "--format=%T"), "the job in the queue"
    )
    status = dlscale(cluster, "status", "--results", str(elsewhere))
    assert f"job-000: pending, job {job}" in status.stdout
    start_again(cluster, job)

    lines = (folder / "jobs" / "job-000.jsonl").read_text().split("\n")
    events = [json.loads(line) for line in lines if line]
    assert [event["event"] for event in events].count("begin") == 2
    records = records_of(elsewhere, "time-to-solution")
    stopped, ended = [record for record in records if record.case.cell.target]
    assert stopped.failure.kind == "interrupted"
    assert (ended.good, ended.solution.end) == (True, "budget")
    assert ended.resumed.step > 0
    before, last = (e.training_seconds + e.evaluating_seconds for e in ended.solution.evaluations[-2:])
    assert before < 10.0 <= last
    windows = ended.windows.world.sum()
    assert windows < ended.solution.evaluations[-1].training_seconds
    assert not list(folder.glob("checkpoints/*/*"))


@pytest.mark.nightly
def test_a_job_whose_node_died_goes_on_when_the_node_is_back(cluster, tmp_path):
    """Its daemon and its ranks are gone without a word, and the controller gives the node up."""
    elsewhere = tmp_path / "results"
    done = run(cluster, "--results", str(elsewhere), "--launches", "1", "--nodes", "1,2")
    assert done.returncode == 0, done.stdout + done.stderr
    job = wait_for(lambda: job_number(elsewhere), "the job's number")
    rank = wait_for(lambda: rank_on(cluster, "nid00002"), "a rank on the second node")
    cluster.end("nid00002", politely=False)
    os.kill(rank, signal.SIGKILL)
    cluster.slurm("scontrol", "update", "NodeName=nid00002", "State=DOWN", "Reason=died")
    wait_for(
        lambda: "PENDING" in cluster.slurm("squeue", "--noheader", "--format=%T"), "the job in the queue"
    )
    cluster.start_node(2)
    wait_for(lambda: "idle" in cluster.slurm("sinfo", "--noheader", "--nodes=nid00002"), "the node")
    start_again(cluster, job)

    records = records_of(elsewhere)
    good = [record.case.id for record in records if record.good]
    assert len(good) == len(set(good))
    assert done_and_planned(cluster, elsewhere) == (2, 2)
    kinds = {record.failure.kind for record in records if not record.good}
    assert kinds, "the launch that the node took along left a record"
    assert kinds <= {"interrupted", "killed", "error"}


def start_again(cluster, job):
    """Let a requeued job go on now, not in two minutes; returns when it has ended.

    Slurm revokes the first start's credential for a few seconds and refuses a second start within them.
    """
    cluster.slurm("scontrol", "update", f"JobId={job}", "StartTime=now+10")
    wait_for(lambda: idle(cluster), "the requeued job", seconds=200)


def job_number(results):
    path = folder_of(results) / "jobs" / "job-000.id"
    return path.exists() and path.read_text().strip()


def rank_on(cluster, node):
    """The process id of a rank on that node of the cluster."""
    mine = {f"SLURM_CONF={cluster.folder}/slurm.conf".encode(), f"SLURMD_NODENAME={node}".encode()}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = (path.parent / "cmdline").read_bytes()
            if b"dlscale.benchmarks.rank.worker" in words and mine <= set(path.read_bytes().split(b"\0")):
                return int(path.parent.name)
        except OSError:
            continue
    return None
