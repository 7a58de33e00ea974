"""Building Horovod: what a wheel is kept by, the compiler between, the mistakes. Compiles nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks import horovod_build
from dlscale.benchmarks.horovod_build import build_horovod, build_variables, describe, write_compiler
from dlscale.benchmarks.systems.start import Installation

FOUND = {"abi": "x", "frameworks": {"torch": {"torch": "2.13.0"}}, "libraries": {"mpich": "5.0.2"}}
PIP_MAKES_A_WHEEL = (
    'for word; do case $word in --wheel-dir=*) echo >"${word#*=}/horovod-0.28.1.whl";; esac; done'
)


@pytest.fixture
def write_program() -> Callable[..., None]:
    def write(path: Path, body: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    return write


@pytest.fixture
def called(tmp_path: Path) -> Path:
    """What the environment's Python was called with."""
    return tmp_path / "called"


@pytest.fixture
def target(
    tmp_path: Path, write_program: Callable[..., None], monkeypatch: pytest.MonkeyPatch, called: Path
) -> Installation:
    """An environment whose programs are scripts; $PIP is what `pip wheel` does."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
        monkeypatch.delenv(name)
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "constraints.txt").write_text("horovod==0.28.1\n")
    monkeypatch.setattr(horovod_build, "checkout", lambda: tmp_path / "sources")
    bin_ = tmp_path / "env" / "bin"
    (tmp_path / "env" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    write_program(bin_ / "mpiexec", "echo 'HYDRA build details:'; echo '    Version:    5.0.2'")
    write_program(
        bin_ / "python",
        f'echo "$@" >>{called}\n'
        'case "$*" in\n'
        '  "-P -m pip"*" wheel --"*) eval "$PIP";;\n'
        '  "-P -m pip"*) ;;\n'
        f"  *) echo '{json.dumps(FOUND)}';;\n"
        "esac",
    )
    return Installation(
        name="env",
        mpi="detect",
        prefix=tmp_path / "env",
        python=bin_ / "python",
        mpiexec=bin_ / "mpiexec",
        variables={"FROM": "system"},
    )


def test_a_wheel_is_made_once_for_all_that_it_was_built_against_and_noted(
    target: Installation,
    called: Path,
    tmp_path: Path,
    write_program: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("PIP", PIP_MAKES_A_WHEEL)

    def built() -> bool:
        """Whether a wheel was compiled; where it lies is printed."""
        called.unlink(missing_ok=True)
        lines: list[str] = []
        assert build_horovod(target, tell=lines.append) == "0.28.1"
        return "compiling" in lines[0]

    assert built()
    (kept,) = (tmp_path / "cache" / "dlscale" / "wheels").glob("*/*")
    assert kept.name == "horovod-0.28.1.whl"
    assert "wheel --verbose --no-cache-dir" in called.read_text()
    assert f"--force-reinstall {kept}" in called.read_text()
    note = json.loads((target.prefix / "horovod.json").read_text())
    assert note["built_against"] == {"torch": "2.13.0", "mpich": "5.0.2"}
    assert (note["horovod"], note["mpi"], note["key"]) == ("0.28.1", "mpich", kept.parent.name)
    assert not built()
    assert "wheel --verbose" not in called.read_text()
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "1")  # for when it runs
    assert not built()
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    assert built()
    python = target.python.read_text()
    for was, becomes in (("2.13.0", "2.13.1"), ("5.0.2", "5.0.3"), ('"abi": "x"', '"abi": "y"')):
        write_program(target.python, python.replace(was, becomes))
        assert built(), was
    write_program(target.mpiexec, "echo 'mpiexec (Open MPI) 5.0.11'")
    assert built()
    assert json.loads((target.prefix / "horovod.json").read_text())["mpi"] == "openmpi"


def test_a_python_that_does_not_answer_is_one_line(target: Installation, write_program: Callable[..., None]):
    write_program(target.python, "echo broken >&2; exit 1")
    with pytest.raises(UsageError, match="cannot list what is installed there: broken"):
        describe(target)


def test_the_compiler_corrects_what_it_is_told(
    target: Installation, write_program: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    write_program(tmp_path / "real", 'for word in "$@"; do echo "$word"; done')
    monkeypatch.setenv("CXX", f"{tmp_path / 'real'} --first")
    compiler = write_compiler(target, tmp_path / "c++")

    def call(*words: str) -> list[str]:
        done = subprocess.run([compiler, *words], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert call("-std=c++14", "a b.cc") == ["--first", "-std=c++14", "a b.cc", "-std=c++17", "-g0", "-w"]
    assert "-UTENSORFLOW_VERSION" in call("-DTENSORFLOW_VERSION=2", "-c", "horovod/xla_mpi_ops.cc")
    # From lib/python3.11/site-packages/horovod/torch; an MPI elsewhere stays where it is.
    torch = target.prefix / "lib" / "python3.11" / "site-packages" / "torch" / "lib"
    rpath = f"-Wl,-rpath,{target.prefix / 'lib'}:{torch}:/opt/mpi/lib"
    assert call(rpath)[1] == "-Wl,-rpath,$ORIGIN/../../../../../lib:$ORIGIN/../../torch/lib:/opt/mpi/lib"


def test_what_the_build_is_told(target: Installation, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CCL_ROOT", "/opt/intel")
    variables = build_variables(target, {"torch": {}}, Path("c++"))
    assert variables["HOROVOD_WITH_PYTORCH"] == variables["HOROVOD_WITHOUT_TENSORFLOW"] == "1"
    assert "HOROVOD_WITH_TENSORFLOW" not in variables
    assert "CCL_ROOT" not in variables
    assert variables["FROM"] == "system"
    assert variables["PATH"].startswith(f"{target.prefix / 'bin'}:")
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "CCL")
    assert build_variables(target, {"torch": {}}, Path("c++"))["CCL_ROOT"] == "/opt/intel"


def test_a_failed_build_shows_the_end_of_its_log_and_has_no_note(
    target: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PIP", "seq 99; echo 'half.cc:1:10: fatal error: mpi.h: No such file'; exit 1")
    lines: list[str] = []
    with pytest.raises(UsageError, match=r"pip wheel failed with exit status 1; the whole output is in"):
        build_horovod(target, tell=lines.append)
    assert lines[-1].splitlines()[-1] == "half.cc:1:10: fatal error: mpi.h: No such file"
    assert not list((tmp_path / "cache").rglob("*.whl"))
    assert not (target.prefix / "horovod.json").exists()


def test_a_mistake_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "dlscale.benchmarks.cli.horovod", "--environment", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("make horovod: no environment on local 'nothing'; choose one of: .venv,")
    assert done.stderr.count("\n") == 1
