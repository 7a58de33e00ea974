"""Runs an example as its users do: one mpiexec, one core per rank."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
LIMIT_SECONDS = 120


def mpiexec():
    """Command that starts ranks on this machine, more than there are cores if need be."""
    beside = Path(sys.prefix) / "bin" / "mpiexec"
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert program, "the mark lets no test come here without an mpiexec"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if "Open MPI" not in version and "open-mpi" not in version:
        return [program]
    return [program, "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


@pytest.fixture
def run_example(tmp_path):
    """run_example(name, num_ranks) -> what it printed; fails with everything it said if it fails.

    `name` is a path in examples/, or in another `folder` of the checkout.
    """

    def run(name, num_ranks, *, folder="examples"):
        command = [*mpiexec(), "-n", str(num_ranks), sys.executable, str(TOP / folder / name)]
        process = subprocess.Popen(
            command,
            cwd=tmp_path,  # an example leaves nothing in the checkout
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            printed, complained = process.communicate(timeout=LIMIT_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
        if process.returncode:
            pytest.fail(
                f"{name} ended with {process.returncode}\n{printed}\n{complained[-4000:]}", pytrace=False
            )
        return printed

    return run
