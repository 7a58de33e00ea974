"""Processes that end with this one: launchers with their helpers and ranks, and Pythons that are asked something."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

import psutil

from dlscale.benchmarks.launch.interrupts import undisturbed
from dlscale.benchmarks.rank.process import end_with_parent

GRACE_SECONDS = 3.0


@contextmanager
def running(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: IO[bytes],
    complaints: IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Such a process, in a session of its own, which is ended with all that it started when the block is left.

    It ends with this process, too, however that dies: a launcher ends its ranks then, and they end with its helpers.
    Without a file of their own complaints go to the output. Raises OSError if it cannot be started.
    """
    with ExitStack() as stack:
        with undisturbed():  # an exception now would leave a process that nobody knows
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=complaints or subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
            stack.callback(end_group, process)
        yield process


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process of `running` and all that it started on this machine: politely, then by SIGKILL."""
    with undisturbed():
        if process.poll() is None:
            _end_tree(process)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left in its group
        process.wait()


def _end_tree(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group, its group, and all that descend of it.

    A process that is stopped is continued, so that it can end politely. A launcher's helpers are in groups of their
    own, and have another parent once it has gone: they are looked for before.
    """
    with suppress(ProcessLookupError, psutil.NoSuchProcess):
        tree = [psutil.Process(process.pid), *descendants(process.pid)]
        os.killpg(process.pid, signal.SIGTERM)
        os.killpg(process.pid, signal.SIGCONT)
        _signal(tree, signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_SECONDS)
        _signal(tree, signal.SIGKILL)


def descendants(pid: int) -> list[psutil.Process]:
    """The processes of this machine that `pid` started, and those that they started."""
    return list(psutil.Process(pid).children(recursive=True))


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


@contextmanager
def process_descriptor(pid: int) -> Iterator[int]:
    """A descriptor that is readable once that process has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
