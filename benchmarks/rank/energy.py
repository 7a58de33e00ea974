"""The energy that a node takes while it trains, where the machine lets it be read.

Counters in /sys: those of Intel's and AMD's processors (RAPL), and of Cray's nodes (pm_counters).

    /sys/class/powercap/intel-rapl:0          name package-0      counted
    /sys/class/powercap/intel-rapl:0:0        name core           inside package-0
    /sys/class/powercap/intel-rapl:0:1        name dram           counted: memory is not in the package
    /sys/class/powercap/intel-rapl:1          name psys           a platform: packages are in it
    /sys/class/powercap/intel-rapl-mmio:0     name package-0      the same again
    /sys/cray/pm_counters/energy              "123456 J 1700000000 us"   the whole node, accelerators included

The driver `intel-rapl` serves AMD's processors from family 17h on, too. Since Linux 5.10 its counters are root's
alone (CVE-2020-8694) unless a centre opens them. Sources: the kernel's Documentation/power/powercap/powercap.rst and
drivers/powercap/intel_rapl_common.c; HPE, "User Access to Compute Node Power Data".

NVIDIA GPUs are read from the driver's own library: `nvmlDeviceGetTotalEnergyConsumption` gives millijoules since the
driver was loaded, from Volta on, and moves every 20 to 100 ms. AMD's are read from ROCm's: `amdsmi_get_energy_count`
gives ticks of `counter_resolution` microjoules, not inside virtual machines. All GPUs that a library shows count,
whoever trains on them.

Counters are read between windows only, outside of all that is timed: after each window of the warm-up, so that the
last of these readings is the first moment; then at most every `REREAD_SECONDS`, so that no counter begins again
twice unseen; and after the last window.
"""

from __future__ import annotations

import os
import time
from collections import Counter as Multiset
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from dlscale.benchmarks.records.nodes import EnergyReading, Source
from dlscale.benchmarks.records.spool import MeasuredWindow

POWERCAP = "sys/class/powercap"
PM_COUNTERS = "sys/cray/pm_counters/energy"
AMD_DRIVER, NVIDIA_DRIVER = "dev/kfd", "dev/nvidiactl"
COUNTED = ("package", "dram")
MICRO = 1e-6


class UnreadableError(Exception):
    """A counter does not exist or may not be read; the message is the reason, in one line."""


class Counter(Protocol):
    """Joules that only grow, but for those that begin again at `ranges`. Reading it waits for nothing."""

    source: Source
    parts: str
    period: float  # seconds from one of its updates to the next
    ranges: Sequence[float | None]  # joules at which each part begins again at 0; None: never

    def read(self) -> list[float]:
        """Joules of each part. Raises UnreadableError."""


class FileCounter:
    """Counters in files, each a number at the start of a file that is kept open: opening costs more than reading."""

    def __init__(
        self,
        source: Source,
        paths: Sequence[Path],
        *,
        parts: str,
        unit: float,
        period: float,
        ranges: Sequence[float | None],
    ) -> None:
        """Raises UnreadableError if one of them cannot be read. `unit` in joules."""
        self.source, self.parts, self.period, self.ranges = source, parts, period, ranges
        self._unit = unit
        self._files: dict[Path, int] = {}
        for path in paths:
            try:
                self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise UnreadableError(f"{path}: {error.strerror}") from None
        self.read()

    def read(self) -> list[float]:
        """Joules of each part. Raises UnreadableError."""
        return [self._joules(path, descriptor) for path, descriptor in self._files.items()]

    def _joules(self, path: Path, descriptor: int) -> float:
        try:
            return int(os.pread(descriptor, 64, 0).split()[0]) * self._unit
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror}") from None
        except (IndexError, ValueError):
            raise UnreadableError(f"{path} holds no number") from None


def rapl(top: Path = Path("/")) -> FileCounter:
    """The processors' packages and their memory. `top` is where /sys is. Raises UnreadableError."""
    zones, ranges, names = [], [], []
    for zone in sorted((top / POWERCAP).glob("intel-rapl:*")):
        kind = _line(zone / "name").partition("-")[0]
        if kind in COUNTED:
            zones.append(zone / "energy_uj")
            names.append(kind)
            limit = _line(zone / "max_energy_range_uj")
            ranges.append(int(limit) * MICRO if limit.isdecimal() and int(limit) else None)
    if "package" not in names:
        raise UnreadableError(f"no package in /{POWERCAP}/intel-rapl:*")
    counts = Multiset(names)
    parts = ", ".join(
        f"{counts[kind]} {kind}{'s' * (kind == 'package' and counts[kind] > 1)}"
        for kind in COUNTED
        if counts[kind]
    )
    return FileCounter("rapl", zones, parts=parts, unit=MICRO, period=0.001, ranges=ranges)


def pm_counters(top: Path = Path("/")) -> FileCounter:
    """The whole node of a Cray. Raises UnreadableError."""
    path = top / PM_COUNTERS
    if not path.exists():
        raise UnreadableError(f"no /{PM_COUNTERS}")
    return FileCounter("pm_counters", [path], parts="node", unit=1.0, period=0.1, ranges=[None])


def _line(path: Path) -> str:
    """The first line of a file; empty if there is none, or it may not be read."""
    try:
        return path.read_text(encoding="ascii").strip().partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        return ""


MILLI = 1e-3


class Nvml:
    """NVIDIA GPUs, by the driver's library (`Counter`)."""

    source: Source = "nvml"
    period = 0.1

    def __init__(self) -> None:
        """Raises UnreadableError if there is no driver, no GPU, or one that does not count."""
        try:
            import pynvml
        except ImportError:
            raise UnreadableError("nvidia-ml-py is not installed; pip install nvidia-ml-py") from None
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        except pynvml.NVMLError as error:
            raise UnreadableError(f"NVML: {error}") from None
        if not count:
            raise UnreadableError("NVML shows no GPU")
        self.parts = f"{count} GPU{'s' * (count > 1)}"
        self.ranges: Sequence[float | None] = [None] * count
        self.read()

    def read(self) -> list[float]:
        """Joules of each GPU. Raises UnreadableError."""
        energy = self._nvml.nvmlDeviceGetTotalEnergyConsumption
        try:
            return [energy(device) * MILLI for device in self._devices]
        except self._nvml.NVMLError as error:
            raise UnreadableError(f"NVML's energy counter: {error}") from None


class Amdsmi:
    """AMD's GPUs, by ROCm's library (`Counter`). Written from its documentation: no GPU has counted by it yet."""

    source: Source = "amdsmi"
    period = 0.1

    def __init__(self) -> None:
        """Raises UnreadableError if there is no library, no GPU, or one that does not count."""
        try:
            import amdsmi
        except (ImportError, OSError, KeyError) as error:  # the last two where ROCm's library is not found
            raise UnreadableError(f"amdsmi, which comes with ROCm, cannot be imported: {error}") from None
        self._amdsmi: Any = amdsmi
        try:
            amdsmi.amdsmi_init()
            self._devices = amdsmi.amdsmi_get_processor_handles()
        except amdsmi.AmdSmiException as error:
            raise UnreadableError(f"amdsmi: {error}") from None
        if not self._devices:
            raise UnreadableError("amdsmi shows no GPU")
        self.parts = f"{len(self._devices)} GPU{'s' * (len(self._devices) > 1)}"
        self.ranges: Sequence[float | None] = [None] * len(self._devices)
        self.read()

    def read(self) -> list[float]:
        """Joules of each GPU. Raises UnreadableError."""
        try:
            counts = [self._amdsmi.amdsmi_get_energy_count(device) for device in self._devices]
            return [count["energy_accumulator"] * count["counter_resolution"] * MICRO for count in counts]
        except self._amdsmi.AmdSmiException as error:
            raise UnreadableError(f"amdsmi's energy counter: {error}") from None
        except (KeyError, TypeError) as error:
            raise UnreadableError(f"amdsmi's energy counter is not as from ROCm 6.1 on: {error!r}") from None


REREAD_SECONDS = 10.0
MOST_WATTS = 1000.0  # of one part; more than any package, memory or GPU takes
MAX_ERROR = 0.05  # of the joules, by the time that a counter stands still at either end

Clock = Callable[[], float]


class Tally:
    """One counter's joules since `begin`."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._before: list[float] = []
        self._moment = self._first = 0.0
        self._joules = 0.0
        self._reason: str | None = None

    def begin(self, moment: float) -> None:
        self._joules, self._reason = 0.0, None
        self._first = self._moment = moment
        self._before = self._read()

    def add(self, moment: float) -> None:
        if self._reason:
            return
        now, elapsed = self._read(), moment - self._moment
        for before, after, limit in zip(self._before, now, self._counter.ranges, strict=False):
            if limit is not None and elapsed * MOST_WATTS > limit:
                self._reason = f"unread for {elapsed:.0f} s, in which it may have begun at 0 more than once"
            elif after < before and limit is None:
                self._reason = "the counter went back"
            else:
                self._joules += after - before + (limit or 0.0) * (after < before)
        self._before, self._moment = now, moment

    def resume(self, moment: float) -> None:
        """Leave out the joules and seconds since the last reading."""
        if not self._reason:
            self._first += moment - self._moment
            self._before, self._moment = self._read(), moment

    def reading(self) -> EnergyReading:
        """What was counted since `begin`."""
        seconds, period = self._moment - self._first, self._counter.period
        if not self._reason and 2 * period > MAX_ERROR * seconds:
            self._reason = (
                f"{seconds:.3g} s of windows are too short for a counter that moves every {period:g} s"
            )
        return EnergyReading(
            source=self._counter.source,
            parts=self._counter.parts,
            joules=None if self._reason else self._joules,
            seconds=seconds,
            reason=self._reason,
        )

    def _read(self) -> list[float]:
        try:
            return self._counter.read()
        except UnreadableError as error:
            self._reason = str(error)
            return []


class Meter:
    """All counters of a node, for the one rank on it that reads them (`measure.Observer`)."""

    def __init__(
        self,
        counters: Sequence[Counter],
        missing: Sequence[tuple[Source, str]] = (),
        clock: Clock = time.monotonic,
    ) -> None:
        """`missing`: counters that cannot be read, with the reason."""
        self._tallies = [Tally(counter) for counter in counters]
        self._missing, self._clock = missing, clock
        self._moment = clock()

    def after(self, window: MeasuredWindow) -> MeasuredWindow:
        """Start again after each window of the warm-up; later read the counters every `REREAD_SECONDS`."""
        if window.phase == "warmup":
            self._moment = self._clock()
            for tally in self._tallies:
                tally.begin(self._moment)
        elif self._tallies and self._clock() - self._moment >= REREAD_SECONDS:
            self._add()
        return window

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._add()
        yield
        self._moment = self._clock()
        for tally in self._tallies:
            tally.resume(self._moment)

    def end(self) -> list[EnergyReading]:
        """What each counter counted since the warm-up, and which ones could not be read."""
        self._add()
        missing = [EnergyReading(source=source, reason=reason) for source, reason in self._missing]
        return [tally.reading() for tally in self._tallies] + missing

    def _add(self) -> None:
        self._moment = self._clock()
        for tally in self._tallies:
            tally.add(self._moment)


def node_meter(*, device: str, top: Path = Path("/")) -> Meter:
    """The meter of this node; GPUs count where ranks train on them. `top` is where /sys is."""
    makers: dict[Source, Callable[[], Counter]] = {
        "rapl": lambda: rapl(top),
        "pm_counters": lambda: pm_counters(top),
    }
    if device == "gpu" and (top / AMD_DRIVER).exists():
        makers["amdsmi"] = Amdsmi
    if device == "gpu" and ("amdsmi" not in makers or (top / NVIDIA_DRIVER).exists()):
        makers["nvml"] = Nvml
    counters, missing = [], []
    for source, make in makers.items():
        try:
            counters.append(make())
        except UnreadableError as error:
            missing.append((source, str(error)))
    return Meter(counters, missing)
