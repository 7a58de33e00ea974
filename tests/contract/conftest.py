"""The contract runs on the ranks of one mpiexec; tests/mpi starts it for several numbers of ranks."""

import os

import pytest

UNDER_MPIEXEC = "DLSCALE_UNDER_MPIEXEC" in os.environ

if not UNDER_MPIEXEC:
    collect_ignore_glob = ["test_*.py"]


def pytest_terminal_summary(terminalreporter):
    if not UNDER_MPIEXEC:
        terminalreporter.write_line("tests/contract: not collected here; tests/mpi runs it under mpiexec")


@pytest.fixture(scope="session")
def world():
    """The control plane: all ranks of this launch.

    With another MPI's mpiexec every rank would be alone in a world of its own, and pass.
    """
    from mpi4py import MPI

    assert MPI.COMM_WORLD.Get_size() == int(os.environ["DLSCALE_UNDER_MPIEXEC"])
    return MPI.COMM_WORLD
