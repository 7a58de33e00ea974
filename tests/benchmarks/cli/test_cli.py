"""Users' mistakes: one line that says what was asked, what was found and what to do, and exit status 1."""

import stat
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dlscale.benchmarks.cli import VERBS, cli
from dlscale.benchmarks.cli.options import choose_study

LOCAL = """
name = "mine"
title = "mine"
scheduler = "none"
launcher = "mpiexec"
sources.lscpu = "lscpu"
node.cores = {{ value = 2, source = "lscpu", kind = "machine" }}
[environments.here]
prefix = "{prefix}"
mpi = "{mpi}"
setup = "make .venv"
"""


@pytest.fixture
def told(mistake, tmp_path):
    """Run a command line with a mistake and give back the line that it says."""

    def run(*words: str) -> str:
        results = ["--results", tmp_path / "results"] if words[0] == "run" else []
        return mistake(*words, *results)

    return run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fly", ["no verb 'fly'; choose", "run, resume, status"]),
        ("rnu", ["no verb 'rnu' (did you mean run?)"]),
        ("system shw", ["no such command 'shw'"]),
        ("new mine", ["the file's name must end in .py"]),
        ("report --xyzzy", ["see: dlscale report --help"]),
        ("collectives --operations alreduce", ["(did you mean allreduce?)"]),
        ("run weak-scaling --backends=", ["--backends : backends is empty; give a value"]),
        ("run weak-scaling --batch -4", ["--batch -4: input should be greater than 0"]),
        ("run weak-scaling --set launcher=torchrn", ["launcher=torchrn on local", "torchrun"]),
        ("run weak-scaling --set launcher=srun", ["launcher=srun on local", "where scheduler is none"]),
        (
            "run weak-scaling --system cori --set launcher=torchrun --backends none",
            ["launcher torchrun on 64 nodes of cori", "--set allow_open_ports=yes"],
        ),
        ("run weakscaling", ["no study 'weakscaling' (did you mean weak-scaling?); choose one of: "]),
        ("run", ["missing argument 'STUDY'"]),
        ("run weak-scaling --system cory", ["no system 'cory' (did you mean cori?)", "local"]),
        ("run weak-scaling --system none.toml", ["none.toml cannot be read"]),
        (
            "run weak-scaling --set environment=.venv-2",
            ["'.venv-2'", ".venv, .venv-openmpi, .venv-ccl, current"],
        ),
        ("run weak-scaling --backends nccl", ["nccl", "device cpu", "only gpu"]),
        ("run weak-scaling --device tpu", ["--device tpu: ", "input should be 'cpu' or 'gpu'"]),
        ("run weak-scaling --ranks 1:9999999999", ["--ranks 1:9999999999", "1:512:x2"]),
        ("run weak-scaling --ranks ,", ["--ranks ,: value should have at least 1 item"]),
        ("run weak-scaling --launches 100000000", ["launches", "10000"]),
        (f"run weak-scaling --budget {'9' * 400}", ["is not a duration"]),
        (f"run weak-scaling --set rules.max_steps={'9' * 400}", ["max_steps", "1000000000000"]),
        (f"run weak-scaling --data {'x' * 5000}", ["file name too long"]),
        ("run weak-scaling --momentum 0.9", ["No such option '--momentum'; see: dlscale run --help"]),
        ("run weak-scaling --set rules.max_step=9", ["no field 'rules.max_step'", "rules.max_steps"]),
        ("run weak-scaling --set xyz=9", ["no field 'xyz'", "docs/commands.md"]),
        ("run weak-scaling --set max_steps", ["write NAME=VALUE"]),
        ("run weak-scaling --set batch=8 --batch 8", ["a flag and --set batch say the same field"]),
        ("run weak-scaling --set seed=8 --set SEED=9 --set seed=9", ["--set seed is given twice"]),
        ("run time-to-solution --set controls=loader", ["controls=loader in time-to-solution"]),
        ("run weak-scaling --data nothing.h5", ["nothing.h5", "no file"]),
        ("run weak-scaling --nodes 2", ["--nodes on local", "1 node"]),
        ("run weak-scaling --account m1", ["--account", "no scheduler"]),
        ("run weak-scaling --target auc=0.9", ["target.metric", "time-to-solution"]),
        ("run time-to-solution --target auc", ["METRIC=THRESHOLD"]),
        ("run time-to-solution --data synthetic", ["nothing to learn"]),
        (
            "run time-to-solution --set optimizer=adam --set learning_rate=1e-3 --set momentum=0.9",
            ["adam has no momentum"],
        ),
        ("run time-to-solution --workloads resnet50", ["resnet50 with preset", "has no target"]),
        (
            "run time-to-solution --set target.max_seconds=0.001s",
            ["max_seconds", "greater than or equal to 1"],
        ),
        ("report --results /nowhere", ["no study in /nowhere", "dlscale run"]),
        ("system show cory", ["no system 'cory'", "local"]),
        ("doctor --require rung", ["'rung'", "ring"]),
    ],
)
def test_mistakes(told, words, expected):
    text = told(*words.split())
    for part in expected:
        assert part.lower() in text.lower()


@pytest.mark.parametrize("by", ["path", "name", "latest"])
def test_a_study_is_found(tmp_path, by):
    folder = tmp_path / "results" / "local" / "weak-scaling-1a2b3c4d"
    folder.mkdir(parents=True)
    (folder / "study.json").write_text("{}")
    name = {"path": str(folder), "name": "weak", "latest": None}[by]
    assert choose_study(tmp_path / ("elsewhere" if by == "path" else "results"), name) == folder


def test_no_words_give_the_help(dlscale):
    status, out, _ = dlscale()
    assert (status, "Examples" in out) == (1, True)


def test_an_event_file_that_does_not_fit(told, tmp_path):
    path = tmp_path / "events.h5"
    path.write_text("data, label\n")
    assert f"{path}: cannot be opened as HDF5" in told("run", "weak-scaling", "--data", str(path))


def test_a_broken_system_file(told, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("title = 'mine'\nname = \n")
    text = told("run", "weak-scaling", "--system", str(path))
    assert str(path) in text
    assert "line 2" in text
    path.write_text(LOCAL.format(prefix="x", mpi="lam"))
    assert "environments.here.mpi" in told("run", "weak-scaling", "--system", str(path))


def test_an_environment_that_is_not_set_up(told, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(LOCAL.format(prefix=tmp_path / "none", mpi="mpich"))
    text = told("run", "weak-scaling", "--system", str(path))
    assert "no Python" in text
    assert "make .venv" in text


def fake_mpiexec(tmp_path: Path, says: str) -> Path:
    path = tmp_path / "mpiexec"
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("mpiexec (Open MPI) 5.0.11", ["mpiexec is of openmpi", "mpi4py uses mpich"]),
        ("Some Launcher 1.0", ["does not know", "Some Launcher"]),
        (
            "mpiexec version 1.8.0 revision 0",
            ["does not know", "name the launcher in the system's TOML file"],
        ),
    ],
)
def test_the_mpiexec_of_another_mpi(told, tmp_path, says, expected):
    from mpi4py import MPI

    if MPI.get_vendor()[0] != "MPICH":
        expected, says = ["mpiexec is of mpich", "mpi4py uses openmpi"], "HYDRA build details"
    path = tmp_path / "mine.toml"
    text = LOCAL.format(prefix=sys.prefix, mpi="detect")
    path.write_text(text + f'mpiexec = "{fake_mpiexec(tmp_path, says)}"\n')
    said = told("run", "weak-scaling", "--system", str(path))
    for part in expected:
        assert part in said


def flags(command, context):
    """The distinct flags of a command and of those below it."""
    found = {word for option in command.params for word in option.opts if word.startswith("--")}
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        found |= flags(command.get_command(context, name), context)
    return found


def test_there_are_few_verbs_and_flags():
    assert len(VERBS) == 14
    assert len(flags(cli, click.Context(cli))) <= 75


@pytest.mark.parametrize(("columns", "width"), [("130", 110), ("60", 60)])
def test_help_of_run_fits_on_a_screen(columns, width):
    shown = CliRunner().invoke(cli, ["run", "--help"], env={"COLUMNS": columns}).output
    assert max(map(len, shown.rpartition("Examples")[2].partition("What")[2].splitlines())) <= width
    assert len(shown.splitlines()) <= 60 or width < 110
    assert all(f" --{name} " in shown for name in ("workloads", "ranks", "budget", "set", "dry-run"))
