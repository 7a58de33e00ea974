"""The energy that a node takes while it trains, where the machine lets it be read.

RAPL's zones under /sys/class/powercap: of `intel-rapl:*` those named package-0 and, inside of it, dram, which it does
not contain; `psys` and `intel-rapl-mmio` count the same again. AMD's processors have it from family 17h on. Since Linux
5.10 only root may read it (CVE-2020-8694) unless a centre opens it. NVIDIA's driver counts for each GPU from Volta on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dlscale.benchmarks.rank.observers import Observer
from dlscale.benchmarks.records.nodes import EnergyReading, Source
from dlscale.benchmarks.records.spool import MeasuredWindow

ZONES = Path("/sys/class/powercap")
PERIODS: dict[Source, float] = {
    "rapl": 0.001,
    "nvml": 0.1,
}  # seconds from one of a counter's updates to the next
MAX_ERROR = 0.05  # of the joules, by the time that a counter stands still at either end

Counters = list[tuple[float, float]]
"""Joules of each part of a node, and where its counter begins again at 0; 0: never."""


def rapl(zones: Path = ZONES) -> Counters:
    """The processors' packages and their memory. Raises OSError and ValueError."""
    counters = [
        (int((zone / "energy_uj").read_text()) / 1e6, int((zone / "max_energy_range_uj").read_text()) / 1e6)
        for zone in sorted(zones.glob("intel-rapl:*"))
        if (zone / "name").read_text().startswith(("package", "dram"))
    ]
    if not counters:
        raise OSError(f"no package in {zones}/intel-rapl:*")
    return counters


def nvml() -> Counters:
    """All NVIDIA GPUs of the node, whoever trains on them. Raises pynvml.NVMLError, and OSError if there is none."""
    import pynvml

    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    if not gpus:
        raise OSError("NVML shows no GPU")
    return [(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3, 0.0) for gpu in gpus]


class EnergyMeter(Observer):
    """Joules of one source over the windows after the warm-up and the time between them, without pauses."""

    def __init__(self, source: Source, read: Callable[[], Counters]) -> None:
        self._source, self._counters, self._reason = source, read, ""
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
        if not self._reason and 2 * PERIODS[self._source] > MAX_ERROR * self._seconds:
            self._reason = f"{self._seconds:.3g} s of windows are too short for its counters"
        joules = None if self._reason else self._joules
        reason = self._reason or None
        return [EnergyReading(source=self._source, joules=joules, seconds=self._seconds, reason=reason)]

    def _begin(self) -> None:
        self._joules, self._seconds, self._reason = 0.0, 0.0, ""
        self._read()

    def _read(self) -> None:
        self._moment, self._last = time.monotonic(), []
        try:
            self._last = self._counters()
        except OSError as error:
            self._reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        except Exception as error:  # whatever a driver raises, the training goes on
            self._reason = str(error)

    def _add(self) -> None:
        """Count what came since the last reading."""
        before, began = self._last, self._moment
        self._read()
        self._seconds += self._moment - began
        for (old, _), (new, limit) in zip(before, self._last, strict=False):
            self._joules += new - old + limit * (new < old)


def node_meters(*, device: str) -> list[EnergyMeter]:
    """A meter of each source of this node; GPUs count where ranks train on them."""
    meters = [EnergyMeter("rapl", rapl)]
    return [*meters, EnergyMeter("nvml", nvml)] if device == "gpu" else meters
