"""A plan is a table of what is measured, in the words and numbers of run, status and page; a run shows its progress."""

import json
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from dlscale.benchmarks.cli import plan_table, report
from dlscale.benchmarks.cli import run as run_module
from dlscale.benchmarks.cli.plan_table import counted, planned_rows
from dlscale.benchmarks.launch import campaign
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.plan import num_comparisons
from dlscale.benchmarks.study.study import load_study
from tests.benchmarks.study.plans import with_cores
from tests.made_records import make_record

NO_DATA = ["--ranks", "1,2", "--backends", "none,ring", "--preset", "tiny", "--launches", "2"]
SMALL = [*NO_DATA, "--data", "synthetic"]


def a_plan(**changes):
    fields = {"workloads": ["hep_cnn"], "backends": ["none", "ring"], "preset": "tiny", "launches": 2}
    study = load_study("weak-scaling", **fields | changes)
    return expand(study, with_cores(2), environment="default", data=None)


def cases(plan):
    return [case for launch in plan.launches for case in launch.cases]


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
    assert counted(cases(plan)) == "9 cells, 7 launches, 17 cases"
    done = planned_rows(plan, plan.launches[:3])
    assert sum(row["num_launches"] for row in done) == 7
    assert sum(row["num_launches_left"] for row in done) == 3


def test_a_reference_over_a_backend_that_is_not_compared_has_its_row():
    plan = a_plan(backends=["ring"], reference_launches=1)
    assert [row["curve"] for row in planned_rows(plan, plan.launches)] == ["ring", "ring", "none"]


def test_values_of_a_setting_have_rows_of_their_own_named_by_what_differs():
    plan = a_plan(
        backends=["ring", "gloo"],
        backend_options={"gloo": {"bucket_cap_mb": [25, 5], "allow_open_ports": True}},
        precision=["fp32", "bf16"],
        reference_launches=0,
    )
    rows = planned_rows(plan, plan.launches)
    assert {row["curve"] for row in rows if row["num_ranks"] == 2} == {
        *(f"ring, {precision}" for precision in ("fp32", "bf16")),
        *(f"gloo (bucket_cap_mb={size}), {precision}" for size in (5, 25) for precision in ("fp32", "bf16")),
    }


def test_a_dry_run_ends_with_its_cells_after_the_commands(run, tmp_path):
    command = ["run", "weak-scaling", *SMALL, "--dry-run", "--results", str(tmp_path)]
    commands, table = run(*command).split("Weak scaling of ", 1)
    assert commands.count("dlscale.benchmarks.rank.worker") == len(commands.splitlines()) == 7
    assert "workload  framework  backend  ranks" in table
    rows = json.loads(run(*command, "--json"))
    assert rows["schema"] == 1
    assert {row["backend"] for row in rows["rows"]} == {"none", "ring"}
    assert sum(row["num_launches_left"] for row in rows["rows"]) == 7
    assert list(tmp_path.iterdir()) == [], "nothing was started"


def test_the_status_has_the_plans_numbers(run, tmp_path):
    plan = a_plan()
    folder = tmp_path / "local" / "weak-scaling-1"
    (folder / "records").mkdir(parents=True)
    launches = [[case.model_dump(mode="json") for case in launch.cases] for launch in plan.launches]
    (folder / "study.json").write_text(json.dumps({"study": {"name": "mine"}, "launches": launches}))
    head, row = run("status", "--results", str(tmp_path)).splitlines()
    assert dict(zip(head.split(), row.split(), strict=True)) == {
        "study": "weak-scaling-1",
        "system": "local",
        "done": "0",
        "failed": "0",
        "cases": "17",
        "cells": "9",
        "launches": "7",
    }
    (row,) = json.loads(run("status", "--results", str(tmp_path), "--json"))["rows"]
    assert (row["cells"], row["launches"], row["cases"]) == (9, 7, 17)


def test_launch_lines_of_a_job_can_be_pasted(run, tmp_path):
    words = ["--system", "cori", "--nodes", "1,2", "--data", "synthetic", "--results", str(tmp_path)]
    said = run("run", "weak-scaling", "--dry-run", *words)
    assert "#SBATCH" in said
    launches = [line for line in said.splitlines() if "dlscale.benchmarks.rank.worker" in line]
    assert len(launches) > 20
    assert all(line.startswith("env OMP_NUM_THREADS=33 ") and " srun " in line for line in launches)


def test_each_backend_is_compared_with_the_first_on_every_number_of_ranks_above_1():
    def comparisons(backends, ranks, **fields):
        return num_comparisons(
            make_record(backend=backend, num_ranks=count, **fields).case.cell
            for backend in backends
            for count in ranks
        )

    assert comparisons(["none", "mpi", "ring", "gloo"], [1, 2, 4, 8]) == 6
    assert comparisons(["none", "mpi"], [1, 2, 4]) == 0
    assert comparisons(["mpi", "ring"], [1]) == 0
    assert comparisons(["none", "ring", "mpi"], [2], control="loader") == 0


@pytest.mark.parametrize(("backends", "launches"), [("none,ring,mpi", 6), ("none,mpi,gloo,ring", 7)])
def test_a_study_without_a_number_of_launches_gets_what_its_comparisons_need(run, backends, launches):
    words = ["--ranks", "1,2", "--backends", backends, "--dry-run", "--json"]
    rows = json.loads(run("run", "weak-scaling", *words))["rows"]
    assert {row["num_launches"] for row in rows if row["controls"] != ["whole_machine"]} == {launches}


# Seconds of launches that were planned to take 10 s each, on a machine with other programs at the start.
RECORDED = [58.1, 23.7, 12.4, 11.8, 10.2, 12.9, 10.4, 11.1, 10.8, 11.6, 10.3, 10.9, 13.5, 10.6, 11.2, 10.7]


@pytest.fixture
def shown(capsys, monkeypatch):
    """What a run of the recorded launches shows; the second fails."""

    def show(*, columns=100, terminal=False, kind="xterm"):
        clock, seconds = [0.0], iter(RECORDED)
        record = make_record(backend="ring", num_ranks=2)
        failed = SimpleNamespace(
            case=record.case, failure=SimpleNamespace(message=f"died {'and more ' * 20}")
        )

        def run_launch(*_):
            clock[0] += next(seconds)
            return [failed] if clock[0] == sum(RECORDED[:2]) else []

        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", kind)
        if terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setattr(run_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        plan = SimpleNamespace(
            study=load_study("weak-scaling"), num_launches=1, seconds=lambda launches: 10.0 * len(launches)
        )
        launch = SimpleNamespace(cell=record.case.cell, cases=[record.case])
        launches = [launch] * len(RECORDED)
        monkeypatch.setattr(campaign, "open_campaign", lambda *_: nullcontext(launches))
        monkeypatch.setattr(plan_table, "say_plan", lambda *_: None)
        monkeypatch.setattr(report, "show_study", lambda _: 0)
        store = SimpleNamespace(folder="here")
        run_module.run_here(SimpleNamespace(plan=plan, run=run_launch, store=store, todo=list), {})
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)

    return show


def test_the_first_launch_corrects_what_is_left(shown):
    text = shown()
    minutes = re.findall(
        r"launches, (?:(\d+) min )?(\d+) s left; block 1/1: hep_cnn, torch, ring, 2 ranks", text
    )
    left = [60 * int(whole or 0) + int(rest) for whole, rest in minutes]
    assert len(left) == len(RECORDED)
    assert (left[0], left[1]) == (160, pytest.approx(58.1 * 15, abs=1))
    truth = [sum(RECORDED[index:]) for index in range(len(RECORDED))]
    assert all(said < 1.6 * real for said, real in zip(left[5:], truth[5:], strict=True)), "one slow launch"
    failure = next(line for line in text.splitlines() if line.startswith("failed: "))
    assert failure.endswith("and more "), "in a file no line is broken"


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_terminal_has_one_line_that_is_written_again_and_never_wraps(shown, columns):
    text = shown(columns=columns, terminal=True)
    updates = [line.rstrip() for line in re.split(r"[\r\n]", text) if "launches" in line]
    assert all("left" in line and len(line) <= columns for line in updates)
    assert "failed: " in text


def test_a_terminal_whose_cursor_cannot_be_moved_has_a_line_per_launch(shown):
    assert shown(terminal=True, kind="dumb").count(" left; block ") == len(RECORDED)
