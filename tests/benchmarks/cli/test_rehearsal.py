"""Rehearsals of studies on systems that are not here: published facts, scripts, plans, predictions."""

import json
from pathlib import Path

import pytest

from dlscale.base.definitions import names
from dlscale.benchmarks.records.prediction import read_predictions
from dlscale.benchmarks.systems import system as system_module
from dlscale.benchmarks.systems.system import load_system
from dlscale.models import NAMES


@pytest.fixture
def rehearse(dlscale, tmp_path):
    """Rehearse weak scaling: what is said."""

    def run(*words):
        given = ("run", "weak-scaling", "--data", "synthetic", "--results", tmp_path, *words)
        status, out, err = dlscale(*given)
        assert status == 0, err
        return out

    return run


def test_the_preset_that_a_system_has_anyway_may_be_named(dlscale):
    plans = [
        dlscale("run", "strong-scaling", "--dry-run", "--system", "cori", *preset)
        for preset in ([], ["--preset", "paper"])
    ]
    assert plans[0][0] == 0
    assert plans[0][1].splitlines()[2:] == plans[1][1].splitlines()[2:]


def test_nodes_that_are_billed_and_not_used_are_said_before_the_jobs(dlscale):
    _, text, _ = dlscale("run", "weak-scaling", "--dry-run", "--system", "aurora", "--nodes", "1,2")
    warning = "jobs need at most 2 nodes, and the partition bills at least 256"
    assert text.index(warning) < text.rindex("job-000")


def test_a_rehearsal_writes_scripts_plan_and_bounds_and_measures_nothing(rehearse, tmp_path):
    said = rehearse("--system", "cori", "--preset", "paper", "--nodes", "1,2,4,8,16")
    first, *_ = said.splitlines()
    assert (
        first == "rehearsal: cori was switched off in May 2023; nothing is submitted and nothing was measured"
    )
    assert "Predicted, not measured on cori: on 16 nodes " in said
    assert "not modelled: permanently slower ranks and jitter of messages" in said
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
    rows = [line.split() for line in said.splitlines()]
    assert ["mpi", "16"] in [row[:2] for row in rows], "the table has every size"
    page = (folder / "report.html").read_text()
    for text in ("simulated: predicted by a model, nothing was run", "What it rests on", "job-001"):
        assert text in page
    stem = "hep_cnn-paper-tensorflow-weak-scaling"
    drawn = sorted(path.name for path in (folder / "figures").iterdir())
    assert drawn == [f"{stem}.{kind}" for kind in ("csv", "jsonl", "pdf", "png", "svg")]
    records = read_predictions(folder / "figures" / f"{stem}.jsonl")
    assert {(record.evidence, record.system) for record in records} == {("simulated", "cori")}
    assert {record.backend for record in records} == {"ring", "mpi"}
    assert {record.num_nodes for record in records if record.backend == "ring"} == {1, 2, 4, 8, 16}


SCHEDULED = [name for name in names("systems") if load_system(name).has_jobs]


@pytest.mark.slow
@pytest.mark.parametrize("system", SCHEDULED)
def test_every_system_with_jobs_has_a_plan_of_every_workload(system, tmp_path, dlscale):
    words = ["--dry-run", "--system", system, "--workloads", ",".join(NAMES), "--results", tmp_path]
    status, out, err = dlscale("run", "weak-scaling", *words)
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0].endswith("nothing is submitted and nothing was measured")
    assert any(line.startswith("job      nodes") for line in lines)
    assert any("rehearsed with --set allow_open_ports" in line for line in lines) == (
        load_system(system).default_device == "gpu"
    )


@pytest.mark.usefixtures("no_pictures")
def test_a_file_of_ones_own_is_rehearsed_with_a_prediction(rehearse, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text((Path(system_module.__file__).parent / "template.toml").read_text())
    said = rehearse("--system", path, "--nodes", "1,2,4", "--walltime", "4h")
    assert said.splitlines()[0].endswith("nothing is submitted and nothing was measured")
    assert "Predicted, not measured on template: on 4 nodes " in said
    (drawn,) = tmp_path.glob("*/rehearsal-weak-scaling-*/figures/hep_cnn-*.jsonl")
    assert {record.num_nodes for record in read_predictions(drawn)} == {1, 2, 4}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("cori --nodes 10000", "10000 nodes on partition regular of cori"),
        ("cori --nodes 1 --walltime 1min", "too short"),
        ("cori --nodes 1 --walltime soon", "--walltime soon: 'soon' is not a duration"),
        ("cori --set max_node_hours=0.5", "more than max_node_hours = 0.5"),
        ("cori --partition gpu", "no partition 'gpu' on cori"),
        ("cori --set environment=conda", "conda"),
        ("local --in-allocation", "--in-allocation"),
    ],
)
def test_what_cannot_be_is_one_line(mistake, tmp_path, words, text):
    words = ["--data", "synthetic", "--results", tmp_path, "--system", *words.split()]
    assert text in mistake("run", "weak-scaling", *words)


def test_the_speed_of_a_study_with_a_target_is_rehearsed(dlscale, tmp_path):
    status, out, err = dlscale("run", "time-to-solution", "--system", "cori", "--results", tmp_path)
    assert status == 0, err
    assert "hep_cnn tiny in torch, weak scaling on cori" in out
    assert "16  train" in out, "16 samples per rank, as trainings on this machine have"
