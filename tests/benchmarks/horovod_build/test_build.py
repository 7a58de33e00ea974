"""Building Horovod: what a wheel is kept by, the compiler between, the mistakes. Compiles nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.horovod_build import build
from dlscale.benchmarks.horovod_build import build as building
from dlscale.benchmarks.horovod_build.progress import Lines
from dlscale.benchmarks.horovod_build.target import (
    InstalledFacts,
    Target,
    build_variables,
    describe,
    write_compiler,
)

FACTS = InstalledFacts(
    abi="cpython-311-x86_64-linux-gnu",
    frameworks={"torch": {"torch": "2.13.0+cpu"}, "tensorflow": {"tensorflow-cpu": "2.21.0"}},
    libraries={"mpich": "5.0.2"},
    mpi="MPICH 5.0.2",
    operations={},
    horovod="0.28.1",
)


@pytest.fixture
def target(tmp_path: Path, write_program: Callable[..., None]) -> Target:
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
    return Target(
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
    monkeypatch.setattr("dlscale.benchmarks.horovod_build.target.RECIPE", 99)
    assert FACTS.key != before


def test_what_is_installed(target: Target, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "1")  # for when it runs
    facts = describe(target)
    assert facts.operations == {"HOROVOD_GPU_OPERATIONS": "NCCL"}
    assert facts.built_against == {"torch": "2.13.0", "mpich": "5.0.2"}
    assert str(facts) == "torch 2.13.0 over MPICH 5.0.2, HOROVOD_GPU_OPERATIONS=NCCL"


@pytest.mark.parametrize(
    ("banner", "mpi"),
    [
        ("Intel(R) MPI Library for Linux* OS, Version 2021.14 Build 20240911 (id: b3f)", "Intel MPI 2021.14"),
        ("mpiexec (Open MPI) 5.0.11", "Open MPI 5.0.11"),
        ("something", "an unknown MPI"),
    ],
)
def test_other_mpis(target: Target, write_program: Callable[..., None], banner: str, mpi: str):
    write_program(target.mpiexec, f"echo '{banner}'")
    assert describe(target).mpi == mpi


def test_no_framework_no_wrapper_no_answer(target: Target, write_program: Callable[..., None]):
    write_program(target.python, 'echo \'{"abi": "", "frameworks": {}, "libraries": {}}\'')
    with pytest.raises(UsageError, match="neither PyTorch nor TensorFlow is installed there; install one"):
        describe(target)
    write_program(target.python, "echo broken >&2")
    with pytest.raises(UsageError, match="cannot say what is installed there: broken"):
        describe(target)
    target.mpiexec.with_name("mpicxx").unlink()
    write_program(target.python, "echo '{}'")
    with pytest.raises(UsageError, match=r"no mpicxx beside .*; install that MPI's compiler wrappers"):
        describe(target)


def test_no_compiler(target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(UsageError, match=r"no C\+\+ compiler 'no-such-compiler -O2' on PATH.*CXX="):
        write_compiler(target, tmp_path / "c++")


def test_the_compiler_corrects_what_it_is_told(
    target: Target, write_program: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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


def test_what_the_build_is_told(target: Target, monkeypatch: pytest.MonkeyPatch):
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


def test_a_kept_wheel(cache: Path):
    with build.open_wheels_folder("key", waiting=pytest.fail) as folder:
        assert folder == cache / "key"
        assert build.find_wheel(folder) is None
        new = folder / "new" / "horovod-0.28.1.whl"
        new.parent.mkdir()
        new.write_bytes(b"wheel")
        kept = build.keep_wheel(new, folder)
    assert build.find_wheel(folder) == kept
    subprocess.run(["sha256sum", "--check", f"{kept.name}.sha256"], cwd=folder, check=True)

    kept.write_bytes(b"whee")
    assert build.find_wheel(folder) is None
    kept.write_bytes(b"wheel")
    kept.with_name(f"{kept.name}.sha256").unlink()
    assert build.find_wheel(folder) is None


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot keep wheels in .*Not a directory; .*XDG_CACHE_HOME="):
        build.open_wheels_folder("key", waiting=print).__enter__()


def test_from_the_cache_and_what_is_noted(
    target: Target,
    cache: Path,
    write_program: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "constraints.txt").write_text("horovod==0.28.1\n")
    monkeypatch.setattr("dlscale.benchmarks.horovod_build.target.checkout", lambda: sources)
    monkeypatch.setattr(building, "checkout", lambda: sources)
    asked = tmp_path / "asked"
    write_program(
        target.python,
        f'[ "$1" = -m ] && echo "$@" >>{asked} && exit 0\n'
        f'case "$2" in *hvd*) echo "OSError: libmpi.so.12"; exit ${{STATUS:-0}};; esac\n{target.python}.real',
    )
    write_program(
        target.python.with_name("python.real"),
        """echo '{"abi": "x", "frameworks": {"torch": {"torch": "2.13.0"}}, "libraries": {}}'""",
    )
    folder = build.wheels_folder(describe(target).key)
    (folder / "new-killed").mkdir(parents=True)
    (folder / "new-killed" / "horovod-0.28.1.whl").write_bytes(b"wheel")
    kept = build.keep_wheel(folder / "new-killed" / "horovod-0.28.1.whl", folder)

    told: list[str] = []
    building.build_horovod(target, watch=Lines(told.append))
    assert "from" in told[0]
    assert asked.read_text().splitlines()[-1].endswith(f"--force-reinstall {kept}")
    note = json.loads((target.prefix / "horovod.json").read_text())
    assert note["built_against"] == {"torch": "2.13.0"}

    monkeypatch.setenv("STATUS", "1")
    with pytest.raises(
        UsageError, match=r"import check failed: horovod\.torch: OSError: libmpi\.so\.12; the whole"
    ):
        building.build_horovod(target, watch=Lines(told.append))
    assert not (target.prefix / "horovod.json").exists()

    # pip says that it works and makes nothing.
    kept.write_bytes(b"damaged")
    with pytest.raises(UsageError, match="source package failed: pip made no wheel; the whole output is in"):
        building.build_horovod(target, watch=Lines(told.append))
    assert "wheel --verbose --no-cache-dir" in asked.read_text()
    assert not list(folder.glob("new-*"))


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
