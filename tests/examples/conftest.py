"""Runs an example as its users do: one mpiexec, one core per rank."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import mpiexec

TOP = Path(__file__).parents[2]
LIMIT_SECONDS = 120


@pytest.fixture
def run_example(tmp_path):
    """run_example(name, num_ranks) -> what it printed; fails with everything it said if it fails.

    `name` is a path in examples/, or in another `folder` of the checkout.
    """

    def run(name, num_ranks, *, folder="examples"):
        command = [*mpiexec()[0], "-n", str(num_ranks), sys.executable, str(TOP / folder / name)]
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
