"""What watches a rank between the windows of its cases: other programs, energy, GPU memory, and counters of steps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlscale.benchmarks.records.record import EnergyReading, GpuMemory, Source
from dlscale.benchmarks.records.spool import Event, MeasuredWindow, boot_id

if TYPE_CHECKING:
    from dlscale.collectives.neighbours import CarriedNeighbours


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

    def fields(self) -> dict[str, Any]:
        """The same, as fields of the `CaseResult`."""
        return {}


STAT = Path("/proc/stat")
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
TAKEN = (0, 1, 2, 7)  # the columns user, nice, system and steal of a core's line


class OtherPrograms(Observer):
    """The share of some cores' time that went to processes other than `pids`, from one reading to the next.

    The kernel counts what its cores did, in ticks of 10 ms, and what each process did. Interrupts are left out: those
    of the network serve the ranks themselves. Time that a hypervisor gave to another machine ("steal") counts as taken.
    """

    def __init__(self, cores: Iterable[int], pids: Iterable[int]) -> None:
        """Raises OSError if there is no such process, or no /proc."""
        self._names = frozenset(f"cpu{core}" for core in cores)
        # The clocks of the processes' CPU time, all threads together, as clock_getcpuclockid makes them in Linux.
        self._clocks = [(~pid << 3) | 2 for pid in pids]
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


ZONES = Path("/sys/class/powercap")
# By a counter's updates, 1 ms and 0.1 s apart: over fewer seconds more than 5 % may be missing.
FEWEST_SECONDS: dict[Source, float] = {"rapl": 0.04, "nvml": 4.0}


def read_joules(source: Source) -> list[tuple[float, float]]:
    """Joules of each part of this node, and where its counter begins again at 0; 0: never.

    RAPL's zones under /sys/class/powercap: of `intel-rapl:*` those named package-0 and, inside of it, dram, which it
    does not contain; `psys` and `intel-rapl-mmio` count the same again. AMD's processors have it from family 17h on.
    Since Linux 5.10 only root may read it (CVE-2020-8694) unless a centre opens it. NVIDIA's driver counts for each GPU
    of the node from Volta on, whoever trains on it. Raises OSError, ValueError and pynvml.NVMLError.
    """
    if source == "nvml":
        import pynvml

        pynvml.nvmlInit()
        gpus = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        counters = [(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3, 0.0) for gpu in gpus]
    else:
        names = ("energy_uj", "max_energy_range_uj")
        counters = [
            (int((zone / names[0]).read_text()) / 1e6, int((zone / names[1]).read_text()) / 1e6)
            for zone in sorted(ZONES.glob("intel-rapl:*"))
            if (zone / "name").read_text().startswith(("package", "dram"))
        ]
    if not counters:
        raise OSError("no GPU" if source == "nvml" else f"no package in {ZONES}/intel-rapl:*")
    return counters


class EnergyMeter(Observer):
    """Joules of one source over the windows after the warm-up and the time between them, without pauses."""

    def __init__(self, source: Source) -> None:
        self._source: Source = source
        self._reason = ""
        self._begin()

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        self._begin() if window.phase == "warmup" else self._add()
        return window

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._add()
        yield
        self._read()

    def end(self) -> list[EnergyReading]:
        self._add()
        if not self._reason and self._seconds < FEWEST_SECONDS[self._source]:
            self._reason = f"{self._seconds:.3g} s of windows are too short for its counters"
        joules, reason = None if self._reason else self._joules, self._reason or None
        return [EnergyReading(source=self._source, joules=joules, seconds=self._seconds, reason=reason)]

    def _begin(self) -> None:
        self._joules, self._seconds, self._reason = 0.0, 0.0, ""
        self._read()

    def _read(self) -> None:
        self._moment, self._last = time.monotonic(), []
        try:
            self._last = read_joules(self._source)
        except Exception as error:  # whatever a driver raises, the training goes on
            self._reason = str(error)

    def _add(self) -> None:
        """Count what came since the last reading."""
        before, began = self._last, self._moment
        self._read()
        self._seconds += self._moment - began
        for (old, _), (new, limit) in zip(before, self._last, strict=False):
            self._joules += new - old + limit * (new < old)


class GpuMemoryMeter(Observer):
    """The most memory of its GPU that a training takes while windows run.

    What gates and audits take for a moment is left out; what audits keep on the GPU while windows run counts.
    """

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._most = GpuMemory(allocated_bytes=0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        now: dict[str, Any] = self._gpu.peak_memory()
        if now["allocated_bytes"] > self._most.allocated_bytes:
            self._most = GpuMemory(**now)
        yield
        self._gpu.forget_peak_memory()

    def end(self) -> list[GpuMemory]:
        """The most that was taken; the next case begins."""
        with self.paused():
            most, self._most = self._most, GpuMemory(allocated_bytes=0)
        return [most]


class StepMeter(Observer):
    """What counters of this rank count per step in the windows after the warm-up; they are fields of `CaseResult`."""

    def __init__(self, names: Sequence[str], read: Callable[[], Sequence[float | None]]) -> None:
        """`read` gives what was counted so far, or None where that is not known."""
        self._names, self._counters = names, read
        self._begin()

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        before = self._before
        self._look()
        if window.phase == "steady":
            self._total += self._before - before
            self._num_steps += window.num_steps
        return window

    @contextmanager
    def paused(self) -> Iterator[None]:
        yield
        self._look()

    def fields(self) -> dict[str, Any]:
        """What a step counts, nothing where that is not known; the next case begins."""
        total, num_steps = self._total, self._num_steps
        self._begin()
        return dict(zip(self._names, (total / num_steps).tolist(), strict=True)) if (total > 0).all() else {}

    def _look(self) -> None:
        self._before = np.array(self._counters(), np.float64)  # None is nan

    def _begin(self) -> None:
        self._look()
        self._total, self._num_steps = np.zeros_like(self._before), 0


class HaloMeter(StepMeter):
    """What ranks that share samples exchange."""

    def __init__(self, neighbours: CarriedNeighbours) -> None:
        self._neighbours = neighbours
        names = ("halo_seconds", "halo_bytes", "num_calls")
        super().__init__(names, lambda: (neighbours.seconds, neighbours.bytes_sent, neighbours.num_calls))

    def fields(self) -> dict[str, Any]:
        """Of a step, with its calls; nothing where there was none."""
        counted = super().fields()
        if not (num_calls := round(counted.pop("num_calls", 0))):
            return {}
        return {**counted, "halo_calls": [str(call) for call in self._neighbours.last_calls()[-num_calls:]]}
