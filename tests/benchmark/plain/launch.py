"""One mpiexec per case, ended with all its ranks if it takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from dlscale.base.redaction import redact
from dlscale.benchmarks.launch.campaign import ALLOCATOR, QUIET, THREAD_VARIABLES
from dlscale.benchmarks.launch.launchers import mpiexec
from dlscale.benchmarks.systems.system import flavour_of
from dlscale.collectives import capabilities

NUM_RANKS = 2


class LaunchError(Exception):
    """A launch that gave no numbers; says why."""


def launch(orders: dict[str, Any], *, limit_seconds: int) -> dict[str, Any]:
    """What rank 0 found. Raises LaunchError."""
    num_servers = 1 if capabilities(orders["backend"]).servers else 0
    num_processes = NUM_RANKS + num_servers
    oversubscribed = num_processes > len(os.sched_getaffinity(0))
    process = subprocess.Popen(
        command({**orders, "oversubscribed": oversubscribed}, num_processes=num_processes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        stop(process)
        raise LaunchError(f"took more than {limit_seconds} s; give --limit-seconds more") from None
    except BaseException:
        stop(process)
        raise
    if process.returncode != 0:
        raise LaunchError(why(output) or f"exit status {process.returncode}")
    found: dict[str, Any] = json.loads(Path(orders["out"]).read_text(encoding="utf-8"))
    return found


def command(orders: dict[str, Any], *, num_processes: int) -> list[str]:
    """As a study's launch: nobody binds but the ranks themselves, and memory is kept between steps."""
    beside = Path(sys.prefix) / "bin" / "mpiexec"
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    if program is None:
        raise LaunchError("there is no mpiexec; install an MPI in this environment")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return mpiexec(
        flavour_of(version) or "mpich",
        Path(program),
        num_ranks=num_processes,
        oversubscribed=orders["oversubscribed"],
        variables={**dict.fromkeys(THREAD_VARIABLES, "1"), **ALLOCATOR, **QUIET},
        program=[sys.executable, str(Path(__file__).with_name("rank.py")), json.dumps(orders)],
    )


def stop(process: subprocess.Popen[str]) -> None:
    """End mpiexec and its ranks: politely, so that it takes its ranks along, then by force."""
    for blow in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, blow)
            process.wait(10)


def why(output: str) -> str:
    """The last line of a traceback of the rank that failed first."""
    lines = [line.strip() for line in output.splitlines()]
    errors = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return redact(errors[0]) if errors else ""
