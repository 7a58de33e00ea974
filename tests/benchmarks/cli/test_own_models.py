"""Users' files on the command line: planned, refused in one line, and begun from a template."""

import json

import pytest

from dlscale.benchmarks.cli import main
from dlscale.benchmarks.launch import own_models
from dlscale.models.own.facts import read_facts
from tests.models.own.conftest import TORCH

pytestmark = pytest.mark.requires("mpiexec")


def said(capsys, *words):
    """(exit status, standard output, standard error) of the command."""
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    return ended.value.code, *capsys.readouterr()


def test_a_new_file_is_planned_as_it_is(tmp_path, capsys):
    path = tmp_path / "start.py"
    assert said(capsys, "new", "workload", path)[0] == 0
    status, out, _ = said(capsys, "plan", "weak-scaling", "--workloads", path, "--ranks", "1,2", "--json")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert {row["workload"].partition("@")[0] for row in rows} == {"start.py"}
    status, _, error = said(capsys, "new", "workload", path)
    assert (status, error) == (1, f"dlscale: {path} exists; give another name, or remove it first\n")
    status, _, error = said(capsys, "new", "workload", tmp_path / "start.txt")
    assert status == 1
    assert "must end in .py" in error


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["--frameworks", "tensorflow"],
            "mine.py@{digest} has no network in tensorflow; choose --frameworks from: torch",
        ),
        (["--preset", "tiny"], "has no preset 'tiny'; choose one of: own"),
        (["--data", "x.h5"], "--data x.h5 for mine.py, which brings its own data"),
        (["--batch", "150"], "data() has 200 samples, and a step needs 300, one global batch"),
    ],
)
def test_what_does_not_fit_a_file_is_one_line(tmp_path, capsys, monkeypatch, options, text):
    path = tmp_path / "mine.py"
    path.write_text(TORCH)
    monkeypatch.setattr(own_models, "ask", lambda path, _: read_facts(path))  # without another process
    status, _, error = said(capsys, "plan", "weak-scaling", "--workloads", path, "--ranks", "2", *options)
    assert status == 1
    assert text.partition("{digest}")[2] in error
    assert len(error.splitlines()) == 1


def test_a_file_that_is_not_there_or_ends_python_is_one_line(tmp_path, capsys):
    path = tmp_path / "mine.py"
    status, _, error = said(capsys, "plan", "weak-scaling", "--workloads", path)
    assert (status, error.splitlines()) == (
        1,
        [f"dlscale: --workloads {path}: no such file; give the path of a Python file, or a known workload"],
    )
    path.write_text("import os\nos._exit(4)\n")
    status, _, error = said(capsys, "plan", "weak-scaling", "--workloads", path)
    assert (status, error.splitlines()) == (
        1,
        ["dlscale: mine.py ended the Python that ran it: no answer, exit status 4; correct the file"],
    )


def test_a_keras_file_is_planned_over_what_can_train_it(tmp_path, capsys, monkeypatch):
    path = tmp_path / "start.py"
    assert said(capsys, "new", "workload", path, "--framework", "keras")[0] == 0
    torch_start = tmp_path / "torch_start.py"
    assert said(capsys, "new", "workload", torch_start)[0] == 0
    facts = read_facts(torch_start).model_copy(update={"file": "start.py", "framework": "tensorflow"})
    monkeypatch.setattr(own_models, "ask", lambda *_: facts)
    plan = ("plan", "weak-scaling", "--workloads", path)
    status, _, error = said(capsys, *plan, "--backends", "none,tf_collective", "--ranks", "2")
    assert status == 1
    assert "backend tf_collective does not train start.py@" in error
    status, out, _ = said(capsys, *plan, "--backends", "all", "--ranks", "1,2", "--json")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert {row["framework"] for row in rows} == {"tensorflow"}
    assert {"none", "mpi", "ring"} <= {row["backend"] for row in rows}
    assert not {"tf_collective", "grpc_ps"} & {row["backend"] for row in rows}
