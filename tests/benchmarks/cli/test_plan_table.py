"""A plan is a table of what is measured, in the words and numbers of run, status and page."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dlscale.benchmarks.cli import run_here
from dlscale.benchmarks.cli.plan_table import cases_of, counted, planned_rows, say_axes, show_plan
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import Shape, Size
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Policy

NO_DATA = ["--ranks", "1,2", "--backends", "none,ring", "--preset", "tiny", "--launches", "2"]
SMALL = [*NO_DATA, "--data", "synthetic"]


def a_plan(**changes):
    fields = {"workloads": ["hep_cnn"], "backends": ["none", "ring"], "preset": "tiny", "launches": 2}
    shape = Shape(
        sizes=(Size(1, 1), Size(1, 2)), ranks_per_node=None, num_cores=2, cores_per_rank=1, threads_per_rank=1
    )
    study = load_study("weak-scaling", **fields | changes)
    return expand(study, environment="default", shape=shape, data=None, policy=Policy())


@pytest.fixture
def run(dlscale):
    def out_of(*words):
        status, out, _ = dlscale(*words)
        assert not status
        return out

    return out_of


def test_cells_that_share_their_launches_are_one_row():
    plan = a_plan()
    rows = planned_rows(plan, plan.launches)
    assert [
        (row["curve"], row["num_ranks"], ", ".join(row["controls"]), row["num_launches"]) for row in rows
    ] == [
        ("none", 1, "train, synthetic, loader", 2),
        ("none", 2, "train, synthetic, loader", 2),
        ("ring", 2, "train, exchange", 2),
        ("none", 1, "whole_machine", 1),
    ]
    assert sum(row["seconds_left"] for row in rows) == pytest.approx(plan.seconds(plan.launches))
    assert counted(cases_of(plan.launches)) == "9 cells, 7 launches, 17 cases"


def test_what_is_done_is_not_left():
    plan = a_plan(reference_launches=0)
    rows = planned_rows(plan, plan.launches[:3])
    assert sum(row["num_launches"] for row in rows) == 6
    assert sum(row["num_launches_left"] for row in rows) == 3
    assert sum(row["seconds_left"] for row in rows) == pytest.approx(plan.seconds(plan.launches[:3]))


def test_a_reference_over_a_backend_that_is_not_compared_has_its_row():
    plan = a_plan(backends=["ring"], reference_launches=1)
    assert [row["curve"] for row in planned_rows(plan, plan.launches)] == ["ring", "ring", "none"]


def test_a_dry_run_ends_with_its_cells_after_the_commands(run, tmp_path):
    command = ["run", "weak-scaling", *SMALL, "--dry-run", "--results", str(tmp_path)]
    commands, table = run(*command).split("Weak scaling of ", 1)
    assert commands.count("dlscale.benchmarks.rank.worker") == len(commands.splitlines()) == 7
    assert "cells, " in table
    assert "workload  framework  backend  ranks" in table
    rows = json.loads(run(*command, "--json"))
    assert rows["schema"] == 1
    assert {row["backend"] for row in rows["rows"]} == {"none", "ring"}
    assert sum(row["num_launches_left"] for row in rows["rows"]) == 7
    assert list(tmp_path.iterdir()) == [], "nothing was started"


def test_json_is_of_a_dry_run(mistake):
    assert "--json without --dry-run" in mistake("run", "weak-scaling", "--json")


def test_a_finished_study_has_nothing_left(capsys):
    show_plan(a_plan(), [])
    assert capsys.readouterr().out == "nothing is left to run: all 17 cases are done\n"


def test_the_status_has_the_plans_words(run, tmp_path):
    plan = a_plan()
    folder = tmp_path / "local" / "weak-scaling-1"
    (folder / "records").mkdir(parents=True)
    launches = [[case.model_dump(mode="json") for case in launch.cases] for launch in plan.launches]
    (folder / "study.json").write_text(json.dumps({"study": {"name": "mine"}, "launches": launches}))
    text = run("status", "--results", str(tmp_path))
    assert "0 of 17 cases done, 0 failed (9 cells in 7 launches)" in text
    (row,) = json.loads(run("status", "--results", str(tmp_path), "--json"))["rows"]
    assert (row["num_cells"], row["num_launches"], row["planned"]) == (9, 7, 17)


def test_the_header_has_the_cores_of_the_shape_whatever_starts_first(run, tmp_path):
    seed = next(seed for seed in range(100) if a_plan(seed=seed).launches[0].cell.control == "whole_machine")
    num_cores = len(os.sched_getaffinity(0))
    words = [
        "run",
        "weak-scaling",
        *NO_DATA,
        "--dry-run",
        "--set",
        f"seed={seed}",
        "--results",
        str(tmp_path),
    ]
    title = next(line for line in run(*words).splitlines() if line.startswith("Weak scaling of "))
    assert title.endswith(f"{num_cores // 2} of {num_cores} cores per rank")


def test_launch_lines_of_a_job_can_be_pasted(run, tmp_path):
    words = ["--system", "cori", "--nodes", "1,2", "--data", "synthetic", "--results", str(tmp_path)]
    said = run("run", "weak-scaling", "--dry-run", *words)
    assert "#SBATCH" in said
    assert "in 1 job, and 2 canary launches" in " ".join(said.split())
    lines = said.splitlines()
    launches = [line for line in lines if "dlscale.benchmarks.rank.worker" in line]
    assert len(launches) > 20
    assert all(line.startswith("env OMP_NUM_THREADS=33 ") and " srun " in line for line in launches)


def test_what_cannot_be_started_here_is_said_before_it_is(run, tmp_path, monkeypatch):
    reason = "Horovod for torch cannot be loaded here; make horovod builds it"
    report = environment.probe

    def without_ring(*arguments):
        return report(*arguments).model_copy(update={"problems": {"ring/torch": reason}})

    monkeypatch.setattr(environment, "probe", without_ring)
    text = run("run", "weak-scaling", *SMALL, "--dry-run", "--results", str(tmp_path))
    assert f"warning: ring in torch cannot be started, its cases will be failures: {reason}" in text


def test_values_of_a_setting_have_rows_of_their_own_named_by_what_differs(capsys):
    plan = a_plan(
        backends=["ring", "gloo"],
        backend_options={"gloo": {"bucket_cap_mb": [25, 5], "allow_open_ports": True}},
        precision=["fp32", "bf16"],
        reference_launches=0,
    )
    rows = planned_rows(plan, plan.launches)
    assert [row["curve"] for row in rows if row["num_ranks"] == 2] == [
        "ring, fp32",
        "ring, bf16",
        "gloo (bucket_cap_mb=5), fp32",
        "gloo (bucket_cap_mb=25), fp32",
        "gloo (bucket_cap_mb=5), bf16",
        "gloo (bucket_cap_mb=25), bf16",
    ]
    say_axes(plan)
    assert capsys.readouterr().out == "axes: precision fp32, bf16; gloo.bucket_cap_mb 25, 5: 6 curves\n"


def test_progress_names_the_curve_also_of_a_launch_whose_training_is_done(monkeypatch, capsys):
    plan = a_plan(backends=["gloo"], backend_options={"gloo": {"bucket_cap_mb": [25, 5]}}, launches=1)
    left = [
        replace(launch, cases=launch.cases[1:])
        for launch in plan.launches
        if len(launch.cases) > 1 and launch.cell.backend == "gloo"
    ]
    monkeypatch.setattr(run_here, "run_launch", lambda *_: [])
    run_here._run_launches(SimpleNamespace(plan=plan), left)
    lines = capsys.readouterr().out
    assert "block 1/1: gloo (bucket_cap_mb=25), 2 ranks; " in lines
    assert "block 1/1: gloo (bucket_cap_mb=5), 2 ranks; " in lines
