"""The energy that a node takes while it trains, where the machine lets it be read.

RAPL's zones under /sys/class/powercap: of `intel-rapl:*` those named package-0 and, inside of it, dram, which it does
not contain; `psys` and `intel-rapl-mmio` count the same again. AMD's processors have it from family 17h on. Since Linux
5.10 it is root's alone (CVE-2020-8694) unless a centre opens it. Cray's counter, "123456 J 1700000000 us", is of the
whole node (HPE, "User Access to Compute Node Power Data"); NVIDIA's driver has one of each GPU from Volta on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dlscale.benchmarks.rank.observers import Observer
from dlscale.benchmarks.records.nodes import EnergyReading, Source
from dlscale.benchmarks.records.spool import MeasuredWindow

POWERCAP = "sys/class/powercap"
PM_COUNTERS = "sys/cray/pm_counters/energy"
MICRO, MILLI = 1e-6, 1e-3
PERIODS = {
    "rapl": 0.001,
    "pm_counters": 0.1,
    "nvml": 0.1,
}  # seconds from one of a counter's updates to the next
REREAD_SECONDS = 10.0
MOST_WATTS = 1000.0  # of one part; more than any package, memory or GPU takes
MAX_ERROR = 0.05  # of the joules, by the time that a counter stands still at either end


class Part(NamedTuple):
    """What a counter counts, which begins again at 0 at `limit` joules; 0: never."""

    kind: str
    joules: float
    limit: float = 0.0


def rapl(top: Path) -> list[Part]:
    """The processors' packages and their memory. Raises OSError and ValueError."""
    parts = [
        Part(kind, _number(path, "energy_uj") * MICRO, _number(path, "max_energy_range_uj") * MICRO)
        for path in sorted((top / POWERCAP).glob("intel-rapl:*"))
        for kind in ("package", "dram")
        if (path / "name").read_text().startswith(kind)
    ]
    if not any(part.kind == "package" for part in parts):
        raise OSError(f"no package in /{POWERCAP}/intel-rapl:*")
    return parts


def pm_counters(top: Path) -> list[Part]:
    """The whole node of a Cray. Raises OSError and ValueError."""
    return [Part("node", _number(top, PM_COUNTERS))]


def _number(folder: Path, name: str) -> int:
    """The number that a file begins with. Raises OSError, and ValueError if there is none."""
    path = folder / name
    try:
        word = path.read_text(encoding="ascii").partition(" ")[0].strip()
    except OSError as error:
        raise OSError(f"{path}: {error.strerror}") from None
    if not word.isdecimal():
        raise ValueError(f"{path} holds no number")
    return int(word)


def nvml() -> list[Part]:
    """All NVIDIA GPUs of the node, whoever trains on them. Raises pynvml.NVMLError, and OSError if there is none."""
    import pynvml

    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    if not gpus:
        raise OSError("NVML shows no GPU")
    return [Part("GPU", pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) * MILLI) for gpu in gpus]


class EnergyMeter(Observer):
    """Joules of one source over the windows after the warm-up and the time between them, without pauses.

    Read between windows only: after each one of the warm-up, then at most every `REREAD_SECONDS`.
    """

    def __init__(self, source: Source, read: Callable[[], list[Part]]) -> None:
        self._source, self._counters = source, read
        self._parts: list[Part] = []
        self._begin()

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        if window.phase == "warmup":
            self._begin()
        elif time.monotonic() - self._moment >= REREAD_SECONDS:
            self._add()
        return window

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._add()
        yield
        self._read()

    def end(self) -> list[EnergyReading]:
        self._add()
        reason, period = self._reason, PERIODS[self._source]
        if not reason and 2 * period > MAX_ERROR * self._seconds:
            reason = (
                f"{self._seconds:.3g} s of windows are too short for a counter that moves every {period:g} s"
            )
        kinds = Counter(part.kind for part in self._parts)
        reading = EnergyReading(
            source=self._source,
            parts=", ".join(f"{count} x {kind}" for kind, count in kinds.items()),
            joules=None if reason else self._joules,
            seconds=self._seconds if kinds else None,
            reason=reason or None,
        )
        return [reading]

    def _begin(self) -> None:
        self._joules, self._seconds, self._reason = 0.0, 0.0, ""
        self._read()

    def _read(self) -> None:
        self._moment = time.monotonic()
        try:
            self._parts = self._counters()
        except Exception as error:  # whatever a driver raises, the training goes on
            self._reason = str(error)

    def _add(self) -> None:
        """Count what came since the last reading."""
        before, began = self._parts, self._moment
        self._read()
        elapsed = self._moment - began
        self._seconds += elapsed
        if len(before) != len(self._parts):
            self._reason = self._reason or f"{len(before)} parts were counted, then {len(self._parts)}"
        for old, new in zip(before, self._parts, strict=False):
            if new.limit and elapsed * MOST_WATTS > new.limit:
                self._reason = f"unread for {elapsed:.0f} s, in which it may have begun at 0 more than once"
            elif new.joules < old.joules and not new.limit:
                self._reason = "the counter went back"
            self._joules += new.joules - old.joules + new.limit * (new.joules < old.joules)


def node_meters(*, device: str, top: Path = Path("/")) -> list[EnergyMeter]:
    """A meter of each source of this node; GPUs count where ranks train on them. `top` is where /sys is."""
    meters = [EnergyMeter("rapl", partial(rapl, top)), EnergyMeter("pm_counters", partial(pm_counters, top))]
    return [*meters, EnergyMeter("nvml", nvml)] if device == "gpu" else meters
