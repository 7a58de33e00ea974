"""Processes on emulated hosts whose study is gone, and their end.

Hosts live no longer than their processes, and these end with mpiexec, however it ends. One that was stopped, or that a
debugger holds, may stay; it is told by the variable `OWNER`, which all processes on hosts inherit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil

from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch.hosts import OWNER, owner

SECONDS = 10.0  # in which a killed process must be gone


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that outlived its study; `command` is its program without arguments, which may hold paths of users."""

    pid: int
    command: str


def leftovers() -> Iterator[Leftover]:
    """Processes of this user, of all users for root, on hosts whose study no longer runs."""
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(OWNER)
            if mark and process.status() != psutil.STATUS_ZOMBIE and not _lives(mark):
                yield Leftover(process.pid, process.name())
        except psutil.Error:
            continue  # ended meanwhile, or another user's


def end(found: Sequence[Leftover]) -> None:
    """Kill these processes and wait until they are gone. Raises UsageError if one stays."""
    living = []
    for leftover in found:
        try:
            process = psutil.Process(leftover.pid)
            process.kill()
            living.append(process)
        except psutil.NoSuchProcess:
            continue
    if stuck := psutil.wait_procs(living, timeout=SECONDS)[1]:
        raise UsageError(
            f"process {stuck[0].pid} is still there {SECONDS:g} s after it was killed: the kernel waits for a device "
            "or a file system; see ps and dmesg"
        )


def _lives(mark: str) -> bool:
    try:
        return owner(int(mark.partition(":")[0])) == mark
    except (OSError, ValueError):
        return False
