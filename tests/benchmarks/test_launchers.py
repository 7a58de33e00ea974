"""Each launcher's whole command line, and what its last words say."""

import os
from pathlib import Path

import pytest

from dlscale.benchmarks.launchers import Death, flavour_of, mpiexec, who_died

PROGRAM = ["python", "-m", "dlscale.benchmarks.worker", "spool/x"]


def line(flavour: str, **changes: object) -> str:
    arguments = {"num_ranks": 2, "oversubscribed": False, "variables": {"OMP_NUM_THREADS": "1"}} | changes
    return " ".join(mpiexec(flavour, Path("/env/bin/mpiexec"), program=PROGRAM, **arguments))  # type: ignore[arg-type]


def test_mpich():
    assert line("mpich") == (
        "/env/bin/mpiexec -n 2 -bind-to none -genv OMP_NUM_THREADS 1 "
        "python -m dlscale.benchmarks.worker spool/x"
    )


def test_intelmpi():
    assert line("intelmpi") == (
        "/env/bin/mpiexec -n 2 -genv I_MPI_PIN 0 -genv OMP_NUM_THREADS 1 "
        "python -m dlscale.benchmarks.worker spool/x"
    )


@pytest.mark.parametrize(("user", "root"), [(1000, ""), (0, "--allow-run-as-root ")])
def test_openmpi(user: int, root: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert line("openmpi") == (
        f"/env/bin/mpiexec -n 2 --bind-to none -x OMP_NUM_THREADS=1 {root}"
        "python -m dlscale.benchmarks.worker spool/x"
    )
    assert line("openmpi", num_ranks=4, oversubscribed=True) == (
        f"/env/bin/mpiexec -n 4 --bind-to none --map-by slot:OVERSUBSCRIBE -x OMP_NUM_THREADS=1 {root}"
        "python -m dlscale.benchmarks.worker spool/x"
    )


@pytest.mark.parametrize(
    ("text", "flavour"),
    [
        ("HYDRA build details:\n    Version: 5.0.2", "mpich"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.14", "intelmpi"),
        ("mpiexec (Open MPI) 5.0.11\n", "openmpi"),
        ("some other launcher 1.0", None),
    ],
)
def test_flavours(text: str, flavour: str | None):
    assert flavour_of(text) == flavour


MPICH_DEATH = """
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4826 RUNNING AT node7
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
"""
OPENMPI_DEATH = """
prterun noticed that process rank 1 with PID 4852 on node node7 exited on
signal 9 (Killed).
"""
OPENMPI_EXIT = """
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-node7-4882@1,1]
   Exit code:    3
"""


@pytest.mark.parametrize(
    ("text", "death"),
    [
        (MPICH_DEATH, Death(pid=4826, how="Killed (signal 9)")),
        (OPENMPI_DEATH, Death(rank=1, how="signal 9")),
        (OPENMPI_EXIT, Death(rank=1, how="exit status 3")),
        ("all went well", None),
    ],
)
def test_who_died(text: str, death: Death | None):
    assert who_died(text) == death
