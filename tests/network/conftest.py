"""Programs over the exchange between nodes: compiled here, for the MPI of this environment or without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
SOURCES = TOP / "collectives/ring/src"
# The kernels of one instruction set are enough: these tests are about messages.
KERNELS = ["reduction/dispatch.cpp", "reduction/kernels_portable.cpp"]
WITHOUT_MPI = [
    "arithmetic",
    "broadcast",
    "direct",
    "doubling",
    "exchange",
    "plan",
    "ring",
    "schedule",
    "tuning",
]
WITH_MPI = [*WITHOUT_MPI, "mpi_transport"]


def compile_program(program: Path, folder: Path, *, mpi: bool, options: list[str]) -> Path:
    """The executable of tests/network/<program>.cpp. Raises CalledProcessError with what the compiler said."""
    beside = Path(sys.prefix) / "bin" / "mpicxx"
    compiler = (str(beside) if beside.exists() else "mpicxx") if mpi else os.environ.get("CXX", "g++")
    files = [f"network/{name}.cpp" for name in (WITH_MPI if mpi else WITHOUT_MPI)] + KERNELS
    executable = folder / program.stem
    subprocess.run(
        [
            *(compiler, "-std=c++17", "-O1", "-g", "-pthread", "-Wall", "-Wextra", *options, f"-I{SOURCES}"),
            *(str(program), *(str(SOURCES / file) for file in files), "-o", str(executable)),
        ],
        check=True,
        timeout=200,
    )
    return executable


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Call with a program's name: its executable, compiled once per module and set of options."""
    known = {}

    def get(name, *options, mpi=False):
        key = (name, options, mpi)
        if key not in known:
            folder = tmp_path_factory.mktemp(name)
            known[key] = compile_program(
                TOP / "tests/network" / f"{name}.cpp", folder, mpi=mpi, options=list(options)
            )
        return known[key]

    return get


@pytest.fixture(scope="session")
def mpiexec():
    """Command that starts ranks on this machine, more than there are cores if need be."""
    beside = Path(sys.prefix) / "bin" / "mpiexec"
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert program, "the mark lets no test come here without an mpiexec"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if "Open MPI" not in version and "open-mpi" not in version:
        return [program]
    return [program, "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
