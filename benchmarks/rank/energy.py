"""The energy that a node takes while it trains, where the machine lets it be read.

RAPL's zones under /sys/class/powercap: of `intel-rapl:*` those named package-0 and, inside of it, dram, which it does
not contain; `psys` and `intel-rapl-mmio` count the same again. AMD's processors have it from family 17h on. Since Linux
5.10 it is root's alone (CVE-2020-8694) unless a centre opens it. Cray's counter, "123456 J 1700000000 us", is of the
whole node (HPE, "User Access to Compute Node Power Data"); NVIDIA's driver has one of each GPU from Volta on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dlscale.benchmarks.rank.observers import Observer
from dlscale.benchmarks.records.nodes import EnergyReading, Source
from dlscale.benchmarks.records.spool import MeasuredWindow

POWERCAP = "sys/class/powercap"
PM_COUNTERS = "sys/cray/pm_counters/energy"
MICRO, MILLI = 1e-6, 1e-3
REREAD_SECONDS = 10.0
MOST_WATTS = 1000.0  # of one part; more than any package, memory or GPU takes
MAX_ERROR = 0.05  # of the joules, by the time that a counter stands still at either end


class EnergyMeter(Observer):
    """Joules of one source over the windows after the warm-up and the time between them, without pauses.

    Read between windows only: after each one of the warm-up, then at most every `REREAD_SECONDS`.
    """

    def __init__(
        self,
        source: Source,
        parts: str,
        read: Callable[[], Sequence[float]],
        *,
        ranges: Sequence[float] = (),
        period: float = 0.1,
    ) -> None:
        """`read` gives the joules of each part, which begin again at 0 at its range, or never without ranges.

        They move once in `period` seconds. Raises what `read` raises.
        """
        self._reading = EnergyReading(source=source, parts=parts)
        self._counters, self._period = read, period
        self._before = read()
        self._ranges = ranges or [0.0] * len(self._before)
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
        reason = self._reason
        if not reason and 2 * self._period > MAX_ERROR * self._seconds:
            reason = f"{self._seconds:.3g} s of windows are too short for a counter that moves every {self._period:g} s"
        counted = {"reason": reason} if reason else {"joules": self._joules}
        return [self._reading.model_copy(update=counted | {"seconds": self._seconds})]

    def _begin(self) -> None:
        self._joules, self._seconds, self._reason = 0.0, 0.0, ""
        self._read()

    def _read(self) -> None:
        self._moment = time.monotonic()
        try:
            self._before = self._counters()
        except Exception as error:  # whatever its driver raises, the training goes on
            self._reason = str(error)

    def _add(self) -> None:
        """Count what came since the last reading."""
        before, began = self._before, self._moment
        self._read()
        elapsed = self._moment - began
        self._seconds += elapsed
        for old, new, limit in zip(before, self._before, self._ranges, strict=True):
            if limit and elapsed * MOST_WATTS > limit:
                self._reason = f"unread for {elapsed:.0f} s, in which it may have begun at 0 more than once"
            elif new < old and not limit:
                self._reason = "the counter went back"
            self._joules += new - old + limit * (new < old)


def rapl(top: Path = Path("/")) -> EnergyMeter:
    """The processors' packages and their memory. `top` is where /sys is. Raises OSError and ValueError."""
    names = {path.parent: path.read_text() for path in sorted((top / POWERCAP).glob("intel-rapl:*/name"))}
    packages = [zone for zone, name in names.items() if name.startswith("package")]
    memory = [zone for zone, name in names.items() if name.startswith("dram")]
    if not packages:
        raise OSError(f"no package in /{POWERCAP}/intel-rapl:*")
    zones = packages + memory
    return EnergyMeter(
        "rapl",
        f"{len(packages)} x package" + (f", {len(memory)} x dram" if memory else ""),
        lambda: [_number(zone / "energy_uj") * MICRO for zone in zones],
        ranges=[_number(zone / "max_energy_range_uj") * MICRO for zone in zones],
        period=0.001,
    )


def nvml() -> EnergyMeter:
    """All NVIDIA GPUs of the node, whoever trains on them. Raises pynvml.NVMLError, and OSError if there is none."""
    import pynvml

    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    if not gpus:
        raise OSError("NVML shows no GPU")
    energy = pynvml.nvmlDeviceGetTotalEnergyConsumption
    return EnergyMeter("nvml", f"{len(gpus)} x GPU", lambda: [energy(gpu) * MILLI for gpu in gpus])


def _number(path: Path) -> int:
    """The number that a file begins with. Raises OSError, and ValueError if there is none."""
    try:
        word = path.read_text(encoding="ascii").partition(" ")[0].strip()
    except OSError as error:
        raise OSError(f"{path}: {error.strerror}") from None
    if not word.isdecimal():
        raise ValueError(f"{path} holds no number")
    return int(word)


class Unread(Observer):
    """A source that cannot be read, and why."""

    def __init__(self, source: Source, reason: str) -> None:
        self._reading = EnergyReading(source=source, reason=reason)

    def end(self) -> list[EnergyReading]:
        return [self._reading]


def node_meters(*, device: str, top: Path = Path("/")) -> list[Observer]:
    """A meter of each source of this node; GPUs count where ranks train on them. `top` is where /sys is."""
    makers: dict[Source, Callable[[], EnergyMeter]] = {
        "rapl": lambda: rapl(top),
        "pm_counters": lambda: EnergyMeter("pm_counters", "node", lambda: [_number(top / PM_COUNTERS)]),
        **({"nvml": nvml} if device == "gpu" else {}),
    }
    meters: list[Observer] = []
    for source, make in makers.items():
        try:
            meters.append(make())
        except Exception as error:  # as above
            meters.append(Unread(source, str(error)))
    return meters
