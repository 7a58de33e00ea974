"""Rehearsals of studies on systems that are not here: published facts, scripts, plans, bounds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dlscale.base.definitions import names
from dlscale.benchmarks.cli import cli
from dlscale.benchmarks.cli.rehearsal import compute_time
from dlscale.benchmarks.records.prediction import read_predictions
from dlscale.benchmarks.systems import system as system_module
from dlscale.benchmarks.systems.system import load_system
from dlscale.models import NAMES, load_workload

DLSCALE = str(Path(sys.prefix) / "bin" / "dlscale")


def test_a_time_that_is_published_is_taken_at_the_published_size_only():
    system, workload = load_system("cori"), load_workload("hep_cnn")
    assert system.sample_seconds == {"hep_cnn": 0.04}
    found = compute_time(
        system, "hep_cnn", workload.preset("paper"), precision="fp32", local_batch=128, ranks_per_node=1
    )
    assert found.seconds == pytest.approx(0.04 * 128)
    assert "published: 40 ms per sample" in found.origin
    small = workload.preset("small")
    asked = {"precision": "fp32", "local_batch": 4, "ranks_per_node": 1}
    assert compute_time(load_system("theta"), "hep_cnn", small, **asked) is None, "no fp32 peak is stated"
    in_single = compute_time(system, "hep_cnn", small, **asked)
    assert in_single.seconds == pytest.approx(3 * small.forward_flops_per_sample * 4 / 6e12)
    at_peak = compute_time(system, "hep_cnn", small, **asked | {"precision": "fp64"})
    assert at_peak.seconds == pytest.approx(3 * small.forward_flops_per_sample * 4 / 3e12)


def rehearse(tmp_path, *words):
    command = [DLSCALE, "run", "weak-scaling", "--data", "synthetic", "--results", str(tmp_path), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_rehearsal_writes_scripts_plan_and_bounds_and_measures_nothing(tmp_path):
    done = rehearse(tmp_path, "--system", "cori", "--preset", "paper", "--nodes", "1,2,4,8,16")
    assert done.returncode == 0, done.stderr
    first, *_ = done.stdout.splitlines()
    assert first == "rehearsal: this machine is not cori; nothing is submitted and nothing was measured"
    assert "published, hep_cnn: Sensitive to the network's latency and to jitter" in done.stdout
    assert "efficiency at most 100 % fully overlapped" in " ".join(done.stdout.split())
    (folder,) = tmp_path.glob("cori/rehearsal-weak-scaling-*")
    assert {path.name for path in folder.glob("job-*.sh")} == {"job-000.sh", "job-001.sh"}
    script = (folder / "job-001.sh").read_text()
    for line in ("#SBATCH --nodes=16", "#SBATCH --constraint=knl,quad,cache", "export KMP_BLOCKTIME=1"):
        assert line in script
    launches = (folder / "job-001.launches.txt").read_text()
    assert "srun --nodes=16 --ntasks=16 --ntasks-per-node=1 --cpus-per-task=272" in launches
    assert "OMP_NUM_THREADS=33" in launches
    description = json.loads((folder / "rehearsal.json").read_text())
    assert description["evidence"] == "nothing was measured"
    assert [job["num_nodes"] for job in description["jobs"]] == [8, 16]
    assert not list(tmp_path.rglob("study.json")), "no verb takes a rehearsal for a study"
    for backend in ("mpi", "ring"):
        assert f"predicted, hep_cnn (paper) over {backend} on 16 nodes: efficiency 9" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["16", "16"] in [row[:2] for row in rows], "the table has every size"
    drawn = sorted(path.name for path in (folder / "figures").iterdir())
    kinds = ("csv", "pdf", "png", "svg")
    names = ("hep_cnn-paper-weak-bounds", "hep_cnn-paper-weak-predicted")
    assert drawn == sorted([*(f"{name}.{kind}" for name in names for kind in kinds), f"{names[1]}.jsonl"])
    records = read_predictions(folder / "figures" / f"{names[1]}.jsonl")
    assert {(record.evidence, record.system) for record in records} == {("simulated", "cori")}
    assert {record.num_nodes for record in records if record.backend == "ring"} == {1, 2, 4, 8, 16}


SCHEDULED = [name for name in names("systems") if load_system(name).has_jobs]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["weak-scaling", "strong-scaling"])
@pytest.mark.parametrize("system", SCHEDULED)
def test_every_system_with_jobs_has_a_plan_of_every_workload(system, kind, tmp_path, capsys):
    words = ["plan", kind, "--system", system, "--workloads", ",".join(NAMES), "--results", str(tmp_path)]
    assert cli.main(words, standalone_mode=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("nothing is submitted and nothing was measured")
    # The published global batch of CosmoGAN takes a node hours per launch: two queues are too short for it.
    refused = kind == "strong-scaling" and system in ("theta", "frontier")
    expected = "is too short: cosmogan" if refused else "node-hours used per case"
    assert any(expected in line for line in lines)
    assert any("rehearsed with allow_open_ports" in line for line in lines) == (
        load_system(system).default_device == "gpu"
    )


@pytest.mark.slow
@pytest.mark.parametrize("system", SCHEDULED)
def test_every_system_with_jobs_has_a_plan_of_a_time_to_solution(system, tmp_path, capsys):
    words = ["plan", "time-to-solution", "--system", system, "--results", str(tmp_path)]
    assert cli.main(words, standalone_mode=False) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].endswith("nothing is submitted and nothing was measured")
    assert "hep_cnn" in text
    assert "16  train" in text, "16 samples per rank, as trainings on this machine have"


def test_a_file_of_ones_own_is_rehearsed_with_a_prediction(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text((Path(system_module.__file__).parent / "template.toml").read_text())
    done = rehearse(tmp_path, "--system", str(path), "--nodes", "1,2,4", "--walltime", "4h")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith("nothing is submitted and nothing was measured")
    assert "derived profile" in done.stdout
    (drawn,) = tmp_path.glob("*/rehearsal-weak-scaling-*/figures/hep_cnn-*-predicted.jsonl")
    assert {record.num_nodes for record in read_predictions(drawn)} == {1, 2, 4}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--system", "cory"), "no system 'cory'"),
        (("--system", "cori", "--nodes", "10000"), "10000 nodes on partition regular of cori"),
        (("--system", "cori", "--nodes", "1", "--walltime", "1min"), "too short"),
        (("--system", "cori", "--nodes", "1", "--walltime", "72h"), "limit of 48 h"),
        (
            ("--system", "cori", "--nodes", "1", "--walltime", "soon"),
            "--walltime soon: 'soon' is not a duration",
        ),
        (("--system", "cori", "--set", "max_node_hours=0.5"), "more than max_node_hours = 0.5"),
        (("--system", "cori", "--partition", "gpu"), "no partition 'gpu' on cori"),
        (("--system", "cori", "--environment", "conda"), "conda"),
        (("--system", "local", "--in-allocation"), "--in-allocation"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, words, text):
    done = rehearse(tmp_path, *words)
    assert done.returncode == 1, done.stdout
    (line,) = done.stderr.splitlines()
    assert text in line
