"""CPU time that other programs take on the cores of a launch: before it starts, and while its windows are measured.

The kernel counts what its cores did (/proc/stat, in ticks of 10 ms), and what each process did. What the launch's own
processes did not do was done by others. Interrupts are left out: those of the network serve the ranks themselves. Time
that a hypervisor gave to another machine ("steal") counts as taken.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from dlscale.benchmarks.rank.process import boot_id
from dlscale.benchmarks.records.spool import Event, MeasuredWindow

STAT = Path("/proc/stat")
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
TAKEN = (0, 1, 2, 7)  # the columns user, nice, system and steal of a core's line

_LIBC = ctypes.CDLL(None, use_errno=True)


class OtherPrograms:
    """The share of some cores' time that went to processes other than `pids`, from one reading to the next."""

    def __init__(self, cores: Iterable[int], pids: Iterable[int]) -> None:
        """Raises OSError if there is no such process, or no /proc."""
        self._names = frozenset(f"cpu{core}" for core in cores)
        self._clocks = [_clock_of(pid) for pid in pids]
        self.begin()

    def begin(self) -> None:
        """The next reading counts from now. Raises OSError like the constructor."""
        self._since = self._read()

    def share(self) -> float | None:
        """Since the last reading, within a few ticks of the truth (below 0, too); None if a process has ended."""
        try:
            now = self._read()
        except OSError:
            return None
        wall, taken, own = (after - before for after, before in zip(now, self._since, strict=True))
        self._since = now
        return (taken - own) / (wall * len(self._names)) if wall > 0 else None

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        """The window with the share since the last one: the time between two is short (`measure.Observer`)."""
        share = self.share()
        return window.model_copy(update={"foreign_cpu": share}) if window.phase == "steady" else window

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def end(self) -> list[Event]:
        return []

    def _read(self) -> tuple[float, float, float]:
        """Seconds: now, that the cores gave to programs, and that our processes had."""
        own = sum(time.clock_gettime(clock) for clock in self._clocks)
        return time.perf_counter(), self._taken_seconds(), own

    def _taken_seconds(self) -> float:
        ticks = 0
        for line in STAT.read_text(encoding="ascii").splitlines():
            name, *columns = line.split()
            if name in self._names:
                ticks += sum(int(columns[column]) for column in TAKEN)
        return ticks * TICK_SECONDS


def watch_other_programs(everyone: Any, *, cores: list[int], reads: bool) -> OtherPrograms | None:
    """What watches this rank's machine, on its first rank that `reads`; None on others, and where it cannot be known.

    Collective over `everyone`, mpi4py's communicator of all of the launch's processes.
    """
    namespace = ""  # processes of another one have other numbers
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    machine = (boot_id(), namespace)
    rank = everyone.Get_rank()
    ranks = everyone.allgather((machine, rank if reads else None, os.getpid(), cores))
    here = [(reader, pid, own) for place, reader, pid, own in ranks if place == machine]
    one_namespace = len({place for place, *_ in ranks if place[0] == machine[0]}) == 1
    first = min((reader for reader, _, _ in here if reader is not None), default=None)
    if first != rank or not one_namespace:
        return None
    try:
        return OtherPrograms({core for _, _, own in here for core in own}, [pid for _, pid, _ in here])
    except (OSError, ValueError):
        return None


def _clock_of(pid: int) -> int:
    """The clock of a process's CPU time, all threads together. Raises OSError if there is no such process."""
    clock = ctypes.c_int()
    if error := _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise OSError(error, os.strerror(error))
    return clock.value
