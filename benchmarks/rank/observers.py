"""What watches a rank while its cases are measured: other programs, energy, its memory and that of its GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dlscale.benchmarks.rank.energy import node_meter
from dlscale.benchmarks.rank.measure import Observer
from dlscale.benchmarks.rank.process import local_rank
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import GpuMemory
from dlscale.benchmarks.records.spool import Event, Halos, MeasuredWindow
from dlscale.collectives import Backend
from dlscale.collectives.neighbours import Call, CarriedNeighbours
from dlscale.models.frameworks import GpuModule, gpu_module


def observers_of(cell: Cell, others: Observer | None) -> list[Observer]:
    """The observers of this rank. One rank of a machine watches other programs, by `others`, and one energy."""
    observers: list[Observer] = [others] if others else []
    if local_rank() == 0:
        observers.append(node_meter(device=cell.device))
    if cell.device == "gpu":
        observers.append(GpuMemoryMeter(gpu_module(cell.framework)))
    return observers


class GpuMemoryMeter:
    """The most memory of its GPU that a training takes while windows run (`measure.Observer`).

    What gates and audits take for a moment is left out; what audits keep on the GPU while windows run counts, as
    everything does that is there.
    """

    def __init__(self, gpu: GpuModule) -> None:
        self._gpu = gpu
        self._most = GpuMemory(allocated_bytes=0)

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        self._look()
        return window

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._look()
        yield
        self._gpu.forget_peak_memory()

    def end(self) -> list[GpuMemory]:
        """The most that was taken; the next case begins."""
        self._look()
        most, self._most = self._most, GpuMemory(allocated_bytes=0)
        self._gpu.forget_peak_memory()
        return [most]

    def _look(self) -> None:
        now: dict[str, Any] = self._gpu.peak_memory()
        if now["allocated_bytes"] > self._most.allocated_bytes:
            self._most = GpuMemory(**now)


class StepMeter:
    """Sums of what counters count in the windows after the warm-up (`measure.Observer`), of this rank."""

    def __init__(self, read: Callable[[], Sequence[float] | None]) -> None:
        """`read` gives what was counted so far; None where it is not known."""
        self._read = read
        self._before: Sequence[float] | None = read()
        self._counted: list[Sequence[float] | None] = []  # of each window
        self._num_steps = 0

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        now = self._read()
        if window.phase == "steady":
            known = now is not None and self._before is not None
            self._counted.append(
                [new - old for new, old in zip(now or (), self._before or (), strict=True)] if known else None
            )
            self._num_steps += window.num_steps
        self._before = now
        return window

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield
        self._before = self._read()

    def end(self) -> Sequence[Event]:
        return []

    def take_per_step(self) -> list[float] | None:
        """What a step counts; the next case begins. None where that is not known."""
        counted, num_steps = self._counted, self._num_steps
        self._counted, self._num_steps, self._before = [], 0, self._read()
        windows = [window for window in counted if window is not None]
        if not num_steps or len(windows) < len(counted):
            return None
        return [sum(column) / num_steps for column in zip(*windows, strict=True)]


class GatherMeter(StepMeter):
    """Seconds of gathers of sharded weights."""

    def __init__(self, backend: Backend) -> None:
        def read() -> Sequence[float] | None:
            seconds = backend.gather_seconds()
            return None if seconds is None else [seconds]

        super().__init__(read)

    def take(self) -> float | None:
        """Seconds per step; the next case begins. None where that is not known."""
        found = self.take_per_step()
        return found[0] if found else None


class HaloMeter(StepMeter):
    """What ranks that share samples exchange."""

    def __init__(self, neighbours: CarriedNeighbours) -> None:
        self.neighbours = neighbours
        self.step_calls: list[Call] = []  # of a step of the last case; none before the first
        super().__init__(lambda: (neighbours.seconds, neighbours.bytes_sent, neighbours.num_calls))

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        """Count what the window's steps exchanged, and keep the last calls, of which the last step's are some."""
        self._calls = self.neighbours.last_calls()
        return super().after(window)

    def take(self) -> Halos | None:
        """Of a step; the next case begins. None where there was none."""
        found = self.take_per_step()
        if found is None:
            return None
        seconds, num_bytes, num_calls = found
        self.step_calls = self._calls[-round(num_calls) :] if num_calls else []
        return Halos(seconds=seconds, num_bytes=num_bytes, calls=[str(call) for call in self.step_calls])


STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
SET_BACK = "5"  # the mark, of what can be set back there
_MARK = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)


class HostMemoryMeter:
    """The largest resident set of this process, and that while windows ran (`measure.Observer`).

    Linux keeps a mark, which is set back around gates and audits: between windows, in less than a millisecond. What
    they leave with the allocator counts. (`getrusage` also has what the process was forked from.)
    """

    def __init__(self) -> None:
        self._launch = 0  # bytes, as all here
        self._windows: int | None = 0  # None: this kernel sets nothing back

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        return window

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens in the body is the launch's alone."""
        self._look()
        yield
        self._set_back()

    def end(self) -> Sequence[Event]:
        self._look()
        self._set_back()
        return []

    def take(self) -> tuple[int, int | None]:
        """The largest so far, and that while this case's windows ran; the next case begins."""
        windows = self._windows
        self._set_back()
        if self._windows is not None:
            self._windows = 0
        return self._launch, windows or None

    def _look(self) -> None:
        if self._windows is not None:
            self._windows = max(self._windows, resident_mark())

    def _set_back(self) -> None:
        self._launch = max(self._launch, resident_mark())
        try:
            CLEAR_REFS.write_text(SET_BACK, encoding="ascii")
        except OSError:
            self._windows = None


def resident_mark() -> int:
    """The largest resident set since the mark was set back."""
    found = _MARK.search(STATUS.read_text(encoding="utf-8", errors="replace"))
    return int(found[1]) * 1024 if found else 0
