"""A node's energy counters in /sys: those of Intel's and AMD's processors (RAPL), and of Cray's nodes (pm_counters).

    /sys/class/powercap/intel-rapl:0          name package-0      counted
    /sys/class/powercap/intel-rapl:0:0        name core           inside package-0
    /sys/class/powercap/intel-rapl:0:1        name dram           counted: memory is not in the package
    /sys/class/powercap/intel-rapl:1          name psys           a platform: packages are in it
    /sys/class/powercap/intel-rapl-mmio:0     name package-0      the same again
    /sys/cray/pm_counters/energy              "123456 J 1700000000 us"   the whole node, accelerators included

The driver `intel-rapl` serves AMD's processors from family 17h on, too. Since Linux 5.10 its counters are root's alone
(CVE-2020-8694) unless a centre opens them. Sources: the kernel's Documentation/power/powercap/powercap.rst and
drivers/powercap/intel_rapl_common.c; HPE, "User Access to Compute Node Power Data".
"""

from __future__ import annotations

import os
from collections import Counter as Multiset
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dlscale.benchmarks.energy.facts import Source

POWERCAP = "sys/class/powercap"
PM_COUNTERS = "sys/cray/pm_counters/energy"
COUNTED = ("package", "dram")
MICRO = 1e-6


class UnreadableError(Exception):
    """A counter that is not there, or may not be read; says why, in one line."""


class Counter(Protocol):
    """Joules that only grow, but for those that begin again at `ranges`. Reading it waits for nothing."""

    source: Source
    parts: str
    period: float  # seconds from one of its updates to the next
    ranges: Sequence[float | None]  # joules at which each part begins again at 0; None: never

    def read(self) -> list[float]:
        """Joules of each part. Raises UnreadableError."""
        ...


@dataclass(frozen=True, slots=True)
class _File:
    """A number at the begin of a file, which is kept open: to open it costs more than to read it."""

    descriptor: int
    path: Path
    unit: float  # joules

    def read(self) -> float:
        try:
            return int(os.pread(self.descriptor, 64, 0).split()[0]) * self.unit
        except OSError as error:
            raise UnreadableError(f"{self.path}: {error.strerror}") from None
        except (IndexError, ValueError):
            raise UnreadableError(f"{self.path} holds no number") from None


class FileCounter:
    """Counters in files."""

    def __init__(
        self,
        source: Source,
        files: Sequence[Path],
        *,
        parts: str,
        unit: float,
        period: float,
        ranges: Sequence[float | None],
    ) -> None:
        """Raises UnreadableError if one of them cannot be read."""
        self.source, self.parts, self.period, self.ranges = source, parts, period, ranges
        self._files = [_File(_opened(path), path, unit) for path in files]
        self.read()

    def read(self) -> list[float]:
        """As `Counter`."""
        return [file.read() for file in self._files]


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


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from None


def _line(path: Path) -> str:
    """The first line of a file; empty if there is none, or it may not be read."""
    try:
        return path.read_text(encoding="ascii").strip().partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        return ""
