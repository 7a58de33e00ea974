"""The exchange between nodes: on ranks that are threads; over MPI; over links between hosts.

The programs check every operation, every algorithm and what happens when ranks disagree; see operations.hpp.
"""

import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_SECONDS = 100
HOSTS = Path(__file__).with_name("hosts.py")

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(280)]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    # UCX may add that messages to ranks that gave up were not taken.
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok" in done.stdout.splitlines(), done.stdout + done.stderr


@pytest.mark.requires("compiler")
def test_ranks_that_are_threads(compiled):
    run([compiled("thread_ranks"), "9"])  # under sanitizers: tests/native


@pytest.mark.requires("mpiexec")
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_over_mpi(compiled, mpiexec, num_ranks):
    run([*mpiexec, "-n", str(num_ranks), compiled("mpi_ranks", mpi=True)])


@pytest.mark.requires("mpiexec")
def test_more_than_an_int_counts(compiled, mpiexec):
    run([*mpiexec, "-n", "2", compiled("mpi_ranks", mpi=True), "large"])


@pytest.mark.requires("mpiexec", "hydra", "namespaces")
@pytest.mark.parametrize("ranks_per_host", [1, 2])
def test_between_four_hosts(compiled, ranks_per_host):
    run([sys.executable, HOSTS, "--ranks-per-host", str(ranks_per_host), compiled("mpi_ranks", mpi=True)])
