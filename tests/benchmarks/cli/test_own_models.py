"""Users' files on the command line: planned, refused in one line, and begun from a template."""

import json

import pytest

from dlscale.benchmarks.launch import own_models
from dlscale.models.own.facts import read_facts
from tests.models.own.conftest import TORCH

pytestmark = pytest.mark.requires("mpiexec")


def test_a_new_file_is_planned_as_it_is(tmp_path, dlscale, mistake):
    path = tmp_path / "start.py"
    assert dlscale("new", path)[0] == 0
    status, out, _ = dlscale(
        "run", "weak-scaling", "--dry-run", "--workloads", path, "--ranks", "1,2", "--json"
    )
    assert status == 0
    rows = json.loads(out)["rows"]
    assert {row["workload"].partition("@")[0] for row in rows} == {"start.py"}
    assert f"{path}: File exists" in mistake("new", path)
    assert "must end in .py" in mistake("new", tmp_path / "start.txt")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--frameworks", "tensorflow"], " has no network in tensorflow; choose --frameworks from: torch"),
        (["--data", "x.h5"], "--data x.h5 for mine.py, which brings its own data"),
        (["--batch", "150"], "data() has 200 samples, and a step needs 300, one global batch"),
    ],
)
def test_what_does_not_fit_a_file_is_one_line(tmp_path, mistake, monkeypatch, options, text):
    path = tmp_path / "mine.py"
    path.write_text(TORCH)
    monkeypatch.setattr(own_models, "ask", lambda path, _: read_facts(path))  # without another process
    assert text in mistake("run", "weak-scaling", "--dry-run", "--workloads", path, "--ranks", "2", *options)


def test_a_file_that_is_not_there_or_ends_python_is_one_line(tmp_path, mistake):
    path = tmp_path / "mine.py"
    plan = ("run", "weak-scaling", "--dry-run", "--workloads", path)
    assert "mine.py: cannot be read (No such file or directory); check --workloads" in mistake(*plan)
    path.write_text(TORCH.replace("import torch\n", "import os\nos._exit(4)\n"))
    assert "mine.py has ended without a first step: no answer, exit status 4" in mistake(*plan)


def test_a_keras_file_is_planned_over_what_can_train_it(tmp_path, dlscale, mistake, monkeypatch):
    path = tmp_path / "start.py"
    assert dlscale("new", path, "--framework", "keras")[0] == 0
    torch_start = tmp_path / "torch_start.py"
    assert dlscale("new", torch_start)[0] == 0
    facts = read_facts(torch_start).model_copy(update={"file": "start.py", "framework": "tensorflow"})
    monkeypatch.setattr(own_models, "ask", lambda *_: facts)
    plan = ("run", "weak-scaling", "--dry-run", "--workloads", path)
    refused = mistake(*plan, "--backends", "none,tf_collective", "--ranks", "2")
    assert "backend tf_collective does not train start.py@" in refused
    status, out, _ = dlscale(*plan, "--backends", "all", "--ranks", "1,2", "--json")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert {row["framework"] for row in rows} == {"tensorflow"}
    assert {"none", "mpi", "ring"} <= {row["backend"] for row in rows}
    assert not {"tf_collective", "grpc_ps"} & {row["backend"] for row in rows}


ONE_LAYER = """
def One(*_):
    return torch.nn.Linear(6, 2)
"""
CLIPPED = ("\nloss =", "\nclip_norm = 1\nloss =")


@pytest.mark.parametrize(
    ("backends", "change", "why"),
    [
        ("none,grpc_ps", CLIPPED, None),
        ("mpi_ps --set algorithms=downpour", CLIPPED, "do not know the file's schedule or clip_norm"),
        ("ring --shard optimizer", CLIPPED, "shard=optimizer: clip_norm=1 needs the norm of all gradients"),
        (
            "ring --shard optimizer",
            ("optim.Adam(", "optim.Adafactor("),
            "Adafactor does not update element by element",
        ),
        ("gloo --shard parameters", ("torch.nn.Sequential(", "One("), None),  # one unit
        ("gloo --shard parameters", ("optim.Adam(", "optim.AdamW("), None),
    ],
)
def test_what_cannot_make_a_files_updates_is_refused(
    tmp_path, dlscale, mistake, monkeypatch, backends, change, why
):
    path = tmp_path / "mine.py"
    path.write_text(ONE_LAYER + TORCH.replace(*change))
    monkeypatch.setattr(own_models, "ask", lambda path, _: read_facts(path))
    plan = ("run", "weak-scaling", "--dry-run", "--workloads", path, "--ranks", "2")
    plan = (*plan, "--backends", *backends.split())
    if why:
        assert why in mistake(*plan)
    else:
        assert dlscale(*plan)[0] == 0
