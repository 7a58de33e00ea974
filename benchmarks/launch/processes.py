"""Processes that end with this one: launchers with their helpers and ranks, and Pythons that are asked something."""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO

import psutil

from dlscale.benchmarks.launch import signals
from dlscale.benchmarks.rank.process import end_with_parent

GRACE_SECONDS = 3.0
POLL_SECONDS = 0.05  # often enough to notice, seldom enough not to disturb ranks that use every core


@contextmanager
def running(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: IO[bytes],
    complaints: IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Such a process, in a session of its own; it is ended with all that it started when the block is left.

    The kernel ends it with this process, too. Signals are deferred meanwhile: `wait` looks at them. Without a file of
    their own complaints go to the output. Raises OSError if it cannot be started.
    """
    with signals.deferred():
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=complaints or subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        try:
            yield process
        finally:
            end(process)


def wait(process: subprocess.Popen[bytes], limit_seconds: float = math.inf) -> bool:
    """Whether the process ended within the limit. Raises KeyboardInterrupt once a signal has arrived."""
    last = time.monotonic() + limit_seconds
    if process.poll() is not None:
        return True
    descriptor = os.pidfd_open(process.pid)
    try:
        while process.poll() is None and (left := last - time.monotonic()) > 0:
            signals.check()
            select.select([descriptor], [], [], min(POLL_SECONDS, left))
    finally:
        os.close(descriptor)
    return process.returncode is not None


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process of `running` and all that it started on this machine: politely, then by SIGKILL.

    What is stopped is continued, so that it can end politely. A launcher's helpers are in groups of their own, and have
    another parent once it has gone: they are looked for before.
    """
    if process.poll() is None:
        members = []
        with suppress(psutil.NoSuchProcess):
            leader = psutil.Process(process.pid)
            members = [leader, *leader.children(recursive=True)]
        os.killpg(process.pid, signal.SIGTERM)
        os.killpg(process.pid, signal.SIGCONT)
        for number, grace in ((signal.SIGCONT, GRACE_SECONDS), (signal.SIGKILL, 0.0)):
            for member in members:
                with suppress(psutil.Error):
                    member.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=grace)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what it left there
    process.wait()
