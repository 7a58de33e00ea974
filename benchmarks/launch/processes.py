"""Processes that outlive nobody: launchers with their helpers and ranks, and others that end with this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from dlscale.benchmarks.launch.interrupts import undisturbed
from dlscale.benchmarks.rank import lifeline

_GUARD = [sys.executable, "-I", "-S", lifeline.__file__]


@contextmanager
def running(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: IO[bytes],
    complaints: IO[bytes] | None = None,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Such a process, in a session of its own, which is ended with all that it started when the block is left.

    It ends with this process, too, however that dies: a guard sees to it, which also removes what ranks noted in
    `folder`. Without a file of their own complaints go to the output. Raises OSError if it cannot be started.
    """
    with ExitStack() as stack:
        with undisturbed():  # an exception now would leave a process that nobody knows
            guard = subprocess.Popen(
                [*_GUARD, str(folder or "")],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(_dismiss, guard)
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=complaints or subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
            stack.callback(end_group, process)
            _tell(guard, f"{process.pid}\n")
        yield process


def _tell(guard: subprocess.Popen[bytes], text: str) -> None:
    if guard.stdin:
        with suppress(BrokenPipeError):  # somebody killed it
            os.write(guard.stdin.fileno(), text.encode())


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    with undisturbed(), guard:  # which waits for its end
        _tell(guard, lifeline.DISMISSED)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process of `running` and all that it started on this machine: politely, then by SIGKILL."""
    with undisturbed():
        if process.poll() is None:
            lifeline.end_tree(process.pid)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left in its group
        process.wait()


@contextmanager
def process_descriptor(pid: int) -> Iterator[int]:
    """A descriptor that is readable once that process has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
