"""Processes that outlive nobody: launchers with their helpers and ranks, and others that end with this one."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO

import psutil

GRACE_SECONDS = 3.0

_LIBC = ctypes.CDLL(None, use_errno=True)  # before any fork: nothing may be loaded between fork and exec
_PR_SET_PDEATHSIG = 1


def start_launcher(
    command: Sequence[str], log: IO[bytes], *, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start mpiexec in a session of its own, all output into `log`. It ends with this process. Raises OSError."""
    return subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that interrupt this program take effect when the block is left: a second Ctrl-C stops no clearing up."""
    arrived: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():  # elsewhere none takes effect
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End mpiexec and all that it started on this machine: politely, then by SIGKILL.

    A process that is stopped is continued, so that it can end politely. The launcher's helpers are in groups of their
    own, and have another parent once it has gone: they are looked for before.
    """
    with undisturbed():
        helpers = descendants(process.pid) if process.poll() is None else []
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                _signal_group(process.pid, number)
                _signal_group(process.pid, signal.SIGCONT)
                _signal_each(helpers, signal.SIGCONT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=GRACE_SECONDS)
        _signal_group(process.pid, signal.SIGKILL)
        _signal_each(helpers, signal.SIGKILL)


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """In a new process: ask the kernel for that signal when its parent dies, even by SIGKILL. mpiexec then ends its
    ranks.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)


def interrupt_on_signals() -> None:
    """A batch system ends a job by SIGTERM, a closed terminal by SIGHUP: both are a Ctrl-C, so that ranks are ended
    and records kept. With nohup a closed terminal means nothing.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)


@contextmanager
def process_descriptor(pid: int) -> Iterator[int]:
    """A descriptor that is readable once that process has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def descendants(pid: int) -> list[psutil.Process]:
    """The processes of this machine that `pid` started, and those that they started."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def _signal_each(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(number)
