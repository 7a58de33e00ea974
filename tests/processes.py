"""Programs that tests start: how to call mpiexec, and how to wait for what a program does."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")


def mpiexec() -> tuple[list[str], bool]:
    """The command that starts ranks, more than there are cores if need be; and whether it is MPICH's."""
    beside = Path(sys.prefix) / "bin" / "mpiexec"
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert program, "the mark lets no test come here without an mpiexec"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if "Open MPI" not in version and "open-mpi" not in version:
        return [program], True
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [program, "--oversubscribe", *as_root], False


def wait_for(condition: Callable[[], Found], what: str = "it", *, seconds: float = 120.0) -> Found:
    """The first true value of a condition; an error where none comes in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds:g} s for {what}")
