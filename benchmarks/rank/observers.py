"""What watches a rank while its cases are measured: other programs, energy, and the memory of its GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dlscale.benchmarks.rank.affinity import local_rank
from dlscale.benchmarks.rank.energy import node_meter
from dlscale.benchmarks.rank.measure import Observer
from dlscale.benchmarks.records.record import Cell, GpuMemory
from dlscale.benchmarks.records.spool import MeasuredWindow
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
        """Nothing of a single window is kept."""
        self._look()
        return window

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens in the body does not count."""
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
