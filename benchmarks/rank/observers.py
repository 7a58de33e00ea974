"""What watches a rank while its cases are measured: other programs, GPU memory, and counters of steps.

Energy, which one rank of a node watches, is in `energy.py`.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dlscale.benchmarks.rank.process import boot_id
from dlscale.benchmarks.records.record import GpuMemory
from dlscale.benchmarks.records.spool import Event, MeasuredWindow

if TYPE_CHECKING:
    from dlscale.collectives.neighbours import Call, CarriedNeighbours
    from dlscale.models.frameworks import GpuModule


class Observer:
    """Looks between the windows of a case, never inside one."""

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        """A window is over; returns it with what was seen."""
        return window

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens in the body is no part of the case."""
        yield

    def end(self) -> Sequence[Event]:
        """What was seen of the whole case, whose windows are over."""
        return ()


STAT = Path("/proc/stat")
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
TAKEN = (0, 1, 2, 7)  # the columns user, nice, system and steal of a core's line
_LIBC = ctypes.CDLL(None, use_errno=True)


class OtherPrograms(Observer):
    """The share of some cores' time that went to processes other than `pids`, from one reading to the next.

    The kernel counts what its cores did, in ticks of 10 ms, and what each process did. Interrupts are left out: those
    of the network serve the ranks themselves. Time that a hypervisor gave to another machine ("steal") counts as taken.
    """

    def __init__(self, cores: Iterable[int], pids: Iterable[int]) -> None:
        """Raises OSError if there is no such process, or no /proc."""
        self._names = frozenset(f"cpu{core}" for core in cores)
        self._clocks = [_clock_of(pid) for pid in pids]
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
        """The window with the share since the last one: the time between two is short."""
        share = self.share()
        return window.model_copy(update={"foreign_cpu": share}) if window.phase == "steady" else window

    def _read(self) -> tuple[float, float, float]:
        """Seconds: now, that the cores gave to programs, and that our processes had."""
        own = sum(time.clock_gettime(clock) for clock in self._clocks)
        lines = (line.split() for line in STAT.read_text(encoding="ascii").splitlines())
        rows = [columns for name, *columns in lines if name in self._names]
        ticks = sum(int(columns[column]) for columns in rows for column in TAKEN)
        return time.perf_counter(), ticks * TICK_SECONDS, own


def watch_other_programs(everyone: Any, *, cores: list[int], reads: bool) -> OtherPrograms | None:
    """What watches this rank's machine, on its first rank that `reads`; None on others, and where it cannot be known.

    Collective over `everyone`, the communicator of all of the launch's processes.
    """
    # Processes of another namespace have other numbers here: they count as another machine's.
    machine = (boot_id(), Path("/proc/self/ns/pid").resolve().name)
    rank = everyone.Get_rank()
    ranks = everyone.allgather((machine, rank if reads else None, os.getpid(), cores))
    here = [(reader, pid, own) for place, reader, pid, own in ranks if place == machine]
    first = min((reader for reader, _, _ in here if reader is not None), default=None)
    if first != rank:
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


class GpuMemoryMeter(Observer):
    """The most memory of its GPU that a training takes while windows run.

    What gates and audits take for a moment is left out; what audits keep on the GPU while windows run counts.
    """

    def __init__(self, gpu: GpuModule) -> None:
        self._gpu = gpu
        self._most = GpuMemory(allocated_bytes=0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._look()
        yield
        self._gpu.forget_peak_memory()

    def end(self) -> list[GpuMemory]:
        """The most that was taken; the next case begins."""
        with self.paused():
            most, self._most = self._most, GpuMemory(allocated_bytes=0)
        return [most]

    def _look(self) -> None:
        now: dict[str, Any] = self._gpu.peak_memory()
        if now["allocated_bytes"] > self._most.allocated_bytes:
            self._most = GpuMemory(**now)


class StepMeter(Observer):
    """What counters of this rank count per step in the windows after the warm-up."""

    def __init__(self, read: Callable[[], Sequence[float | None]]) -> None:
        """`read` gives what was counted so far, or None where that is not known."""
        self._counters = read
        self._begin()

    def _read(self) -> NDArray[np.float64]:
        return np.array(self._counters(), np.float64)  # None is nan

    def _begin(self) -> None:
        self._before, self._num_steps = self._read(), 0
        self._total = np.zeros_like(self._before)

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        before, self._before = self._before, self._read()
        if window.phase == "steady":
            self._total += self._before - before
            self._num_steps += window.num_steps
        return window

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield
        self._before = self._read()

    def take(self) -> list[float] | None:
        """What a step counts; the next case begins. None where that is not known."""
        total, num_steps = self._total, self._num_steps
        self._begin()
        if not num_steps or np.isnan(total).any():
            return None
        per_step: list[float] = (total / num_steps).tolist()
        return per_step


class HaloMeter(StepMeter):
    """What ranks that share samples exchange."""

    def __init__(self, neighbours: CarriedNeighbours) -> None:
        self.neighbours = neighbours
        self.step_calls: list[Call] = []  # of a step of the last case; none before the first
        self._calls: list[Call] = []
        super().__init__(lambda: (neighbours.seconds, neighbours.bytes_sent, neighbours.num_calls))

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        """Count what the window's steps exchanged, and keep the last calls, of which the last step's are some."""
        self._calls = self.neighbours.last_calls()
        return super().after(window)

    def take_halos(self) -> dict[str, Any]:
        """Of a step, as fields of `CaseResult`; the next case begins. Nothing where there was none."""
        counted = self.take()
        if counted is None:
            return {}
        seconds, num_bytes, num_calls = counted
        self.step_calls = self._calls[-round(num_calls) :] if num_calls else []
        calls = [str(call) for call in self.step_calls]
        return {"halo_seconds": seconds, "halo_bytes": num_bytes, "halo_calls": calls}
