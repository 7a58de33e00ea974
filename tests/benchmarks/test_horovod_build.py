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
from dlscale.benchmarks.horovod_build import (
    BuildFacts,
    build_horovod,
    build_variables,
    describe,
    wheels_folder,
    write_compiler,
)
from dlscale.benchmarks.systems.start import Installation

FACTS = BuildFacts(
    abi="cpython-311-x86_64-linux-gnu",
    frameworks={"torch": {"torch": "2.13.0+cpu"}, "tensorflow": {"tensorflow-cpu": "2.21.0"}},
    libraries={"mpich": "5.0.2"},
    mpi="MPICH 5.0.2",
    operations={},
    horovod="0.28.1",
)


@pytest.fixture
def target(tmp_path: Path, write_program: Callable[..., None]) -> Installation:
    """An environment whose programs are scripts."""
    bin_ = tmp_path / "env" / "bin"
    (tmp_path / "env" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    write_program(bin_ / "mpiexec", "echo 'HYDRA build details:'; echo '    Version:    5.0.2'")
    write_program(bin_ / "mpicxx", "exit 0")
    found = {
        "abi": FACTS.abi,
        "frameworks": {"torch": {"torch": "2.13.0"}, "tensorflow": {}},
        "libraries": {"mpich": "5.0.2"},
    }
    write_program(bin_ / "python", f"echo '{json.dumps(found)}'")
    return Installation(
        name="env",
        mpi="detect",
        prefix=tmp_path / "env",
        python=bin_ / "python",
        mpiexec=bin_ / "mpiexec",
        variables={"FROM": "system"},
    )


@pytest.fixture
def write_program() -> Callable[..., None]:
    def write(path: Path, body: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    return write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
        monkeypatch.delenv(name)
    return tmp_path / "cache" / "dlscale" / "wheels"


@pytest.mark.parametrize(
    "change",
    [
        {"abi": "cpython-312-x86_64-linux-gnu"},
        {"frameworks": {"torch": {"torch": "2.13.0+cpu"}}},
        {"frameworks": {"torch": {"torch": "2.13.1"}, "tensorflow": {"tensorflow-cpu": "2.21.0"}}},
        {"libraries": {"mpich": "5.0.3"}},
        {"mpi": "MPICH 5.0.3"},
        {"operations": {"HOROVOD_CPU_OPERATIONS": "CCL"}},
        {"horovod": "0.28.2"},
    ],
)
def test_every_version_has_its_wheel(change: dict[str, object]):
    assert FACTS.model_copy(update=change).key != FACTS.key
    assert FACTS.model_copy().key == FACTS.key


def test_the_recipe_has_its_wheel(monkeypatch: pytest.MonkeyPatch):
    before = FACTS.key
    monkeypatch.setattr("dlscale.benchmarks.horovod_build.RECIPE", 99)
    assert FACTS.key != before


def test_what_is_installed(target: Installation, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "1")  # for when it runs
    facts = describe(target)
    assert facts.operations == {"HOROVOD_GPU_OPERATIONS": "NCCL"}
    assert facts.packages | facts.libraries == {"torch": "2.13.0", "mpich": "5.0.2"}
    assert str(facts) == "torch 2.13.0 over MPICH 5.0.2, HOROVOD_GPU_OPERATIONS=NCCL"


@pytest.mark.parametrize(
    ("banner", "mpi"),
    [
        ("Intel(R) MPI Library for Linux* OS, Version 2021.14 Build 20240911 (id: b3f)", "Intel MPI 2021.14"),
        ("mpiexec (Open MPI) 5.0.11", "Open MPI 5.0.11"),
        ("something", "an unknown MPI"),
    ],
)
def test_other_mpis(target: Installation, write_program: Callable[..., None], banner: str, mpi: str):
    write_program(target.mpiexec, f"echo '{banner}'")
    assert describe(target).mpi == mpi


def test_no_framework_no_wrapper_no_answer(target: Installation, write_program: Callable[..., None]):
    write_program(target.python, 'echo \'{"abi": "", "frameworks": {}, "libraries": {}}\'')
    with pytest.raises(UsageError, match="neither PyTorch nor TensorFlow is installed there; install one"):
        describe(target)
    write_program(target.python, "echo broken >&2")
    with pytest.raises(UsageError, match="cannot list what is installed there: broken"):
        describe(target)
    target.mpiexec.with_name("mpicxx").unlink()
    write_program(target.python, "echo '{}'")
    with pytest.raises(UsageError, match=r"no mpicxx beside .*; install that MPI's compiler wrappers"):
        describe(target)


def test_no_compiler(target: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(UsageError, match=r"no C\+\+ compiler 'no-such-compiler -O2' on PATH.*CXX="):
        write_compiler(target, tmp_path / "c++")


def test_the_compiler_corrects_what_it_is_told(
    target: Installation, write_program: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    write_program(tmp_path / "real", 'for word in "$@"; do echo "$word"; done')
    monkeypatch.setenv("CXX", f"{tmp_path / 'real'} --first")
    write_compiler(target, tmp_path / "c++")

    def call(*words: str) -> list[str]:
        done = subprocess.run([tmp_path / "c++", *words], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert call("-std=c++14", "a b.cc") == ["--first", "-std=c++14", "a b.cc", "-std=c++17", "-g0", "-w"]
    assert "-UTENSORFLOW_VERSION" in call("-DTENSORFLOW_VERSION=2", "-c", "horovod/xla_mpi_ops.cc")
    # From lib/python3.11/site-packages/horovod/torch; an MPI elsewhere stays where it is.
    torch = target.prefix / "lib" / "python3.11" / "site-packages" / "torch" / "lib"
    rpath = f"-Wl,-rpath,{target.prefix / 'lib'}:{torch}:/opt/mpi/lib"
    assert call(rpath)[1] == "-Wl,-rpath,$ORIGIN/../../../../../lib:$ORIGIN/../../torch/lib:/opt/mpi/lib"


def test_what_the_build_is_told(target: Installation, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CCL_ROOT", "/opt/intel")
    only_torch = FACTS.model_copy(update={"frameworks": {"torch": {"torch": "2.13.0"}}})
    variables = build_variables(target, only_torch, Path("c++"))
    assert variables["HOROVOD_WITH_PYTORCH"] == variables["HOROVOD_WITHOUT_TENSORFLOW"] == "1"
    assert "HOROVOD_WITH_TENSORFLOW" not in variables
    assert "CCL_ROOT" not in variables
    assert variables["FROM"] == "system"
    assert variables["PATH"].startswith(f"{target.prefix / 'bin'}:")

    ccl = FACTS.model_copy(update={"operations": {"HOROVOD_CPU_OPERATIONS": "CCL"}})
    assert build_variables(target, ccl, Path("c++"))["CCL_ROOT"] == "/opt/intel"


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot keep wheels in .*Not a directory; .*XDG_CACHE_HOME="):
        wheels_folder("key")


@pytest.fixture
def scripted(
    target: Installation, write_program: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The environment's Python lists what it was called with in this file; $PIP is what `pip wheel` does."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "constraints.txt").write_text("horovod==0.28.1\n")
    monkeypatch.setattr(horovod_build, "checkout", lambda: sources)
    monkeypatch.setenv("CXX", "sh")
    called = tmp_path / "called"
    write_program(
        target.python,
        f'echo "$@" >>{called}\n'
        'case "$*" in\n'
        '  "-P -m pip"*" wheel --"*) eval "$PIP";;\n'
        '  "-P -m pip"*) ;;\n'
        '  *hvd*) echo "OSError: libmpi.so.12"; exit ${STATUS:-0};;\n'
        """  *) echo '{"abi": "x", "frameworks": {"torch": {"torch": "2.13.0"}}, "libraries": {}}';;\n"""
        "esac",
    )
    return called


PIP_MAKES_A_WHEEL = (
    'for word; do case $word in --wheel-dir=*) echo >"${word#*=}/horovod-0.28.1.whl";; esac; done'
)


def test_a_wheel_is_made_once_and_noted(
    target: Installation, scripted: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PIP", PIP_MAKES_A_WHEEL)
    lines: list[str] = []
    facts = build_horovod(target, tell=lines.append)
    kept = cache / facts.key / "horovod-0.28.1.whl"
    assert list(kept.parent.iterdir()) == [kept]
    assert "compiling" in lines[0]
    assert "wheel --verbose --no-cache-dir" in scripted.read_text()
    assert f"--force-reinstall {kept}" in scripted.read_text()
    note = json.loads((target.prefix / "horovod.json").read_text())
    assert note == {
        "horovod": "0.28.1",
        "built_against": {"torch": "2.13.0"},
        "mpi": "MPICH 5.0.2",
        "key": facts.key,
    }

    scripted.unlink()
    lines.clear()
    build_horovod(target, tell=lines.append)
    assert lines[0].endswith(f"from {kept.parent}")
    assert "wheel --verbose" not in scripted.read_text()


def test_a_library_that_does_not_load(target: Installation, scripted: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PIP", PIP_MAKES_A_WHEEL)
    monkeypatch.setenv("STATUS", "1")
    (target.prefix / "horovod.json").touch()
    with pytest.raises(
        UsageError, match=r"loading horovod\.torch failed: OSError: libmpi\.so\.12; the whole"
    ):
        build_horovod(target, tell=print)
    assert not (target.prefix / "horovod.json").exists()


def test_a_failed_build_shows_the_end_of_its_log_and_names_the_first_error(
    target: Installation, scripted: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(
        "PIP", "seq 99; echo 'half.cc:1:10: fatal error: mpi.h: No such file'; echo 'ERROR: Failed'; exit 1"
    )
    lines: list[str] = []
    shown: list[str] = []
    with pytest.raises(UsageError, match=r"pip wheel failed: half\.cc:1:10: fatal error: mpi\.h") as caught:
        build_horovod(target, tell=lines.append, show=shown.append)
    assert "\n" not in str(caught.value)
    assert lines[-1].splitlines()[0] == "87"
    assert lines[-1].splitlines()[-1] == "ERROR: Failed"
    assert shown[-1] == "ERROR: Failed"
    assert not list(cache.glob("*/*"))


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
