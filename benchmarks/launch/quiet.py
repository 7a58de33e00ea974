"""Whether other programs use this machine now, and waiting until they do not."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pynvml

from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.rank.other_programs import OtherPrograms
from dlscale.benchmarks.records.record import DISTURBED

READING_SECONDS = 1.0
QUIET_READINGS = 3  # one after the other: programs pause
PRESSURE = Path("/proc/pressure/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLoad:
    """What other programs use: a share of the time of `num_cores` cores, and processes on GPUs.

    `waiting` is the share of the last 10 s in which some process waited for a core; None where the kernel does not say.
    """

    share: float
    num_cores: int
    waiting: float | None
    num_gpu_processes: int = 0

    @property
    def quiet(self) -> bool:
        return self.share <= DISTURBED and not self.num_gpu_processes

    @property
    def text(self) -> str:
        """`other programs use 0.8 of 2 cores`, and what else is known."""
        parts = [f"other programs use {self.share * self.num_cores:.1f} of {self.num_cores} cores"]
        if self.waiting:
            parts.append(f"some process waited for a core {100 * self.waiting:.0f} % of the last 10 s")
        if self.num_gpu_processes:
            parts.append(f"{self.num_gpu_processes} processes use its GPUs")
        return ", ".join(parts)


def read_other_load(*, gpus: bool) -> OtherLoad:
    """What other programs use over a second of this process's cores, and of GPUs if asked."""
    cores = os.sched_getaffinity(0)
    others = OtherPrograms(cores, [os.getpid()])
    time.sleep(READING_SECONDS)
    return OtherLoad(
        share=max(0.0, others.share() or 0.0),
        num_cores=len(cores),
        waiting=_waiting(),
        num_gpu_processes=_gpu_processes() if gpus else 0,
    )


def wait_until_quiet(
    limit_seconds: float,
    *,
    gpus: bool,
    tell: Callable[[str], None],
    read: Callable[..., OtherLoad] = read_other_load,
) -> None:
    """Return once other programs left the machine alone for some seconds; `tell` gets what keeps it busy.

    Raises UsageError if that takes longer than `limit_seconds`.
    """
    end = time.monotonic() + limit_seconds
    quiet = 0
    while quiet < QUIET_READINGS:
        load = read(gpus=gpus)
        quiet = quiet + 1 if load.quiet else 0
        if not load.quiet and time.monotonic() > end:
            raise UsageError(
                f"the machine was not quiet within {format_seconds(limit_seconds)}: {load.text}; stop them, or run "
                "without wait_quiet: the report then says that the machine was busy"
            )
        if not load.quiet:
            tell(load.text)


def _waiting() -> float | None:
    try:
        match = re.search(r"some avg10=([\d.]+)", PRESSURE.read_text(encoding="ascii"))
    except OSError:
        return None
    return float(match[1]) / 100 if match else None


def _gpu_processes() -> int:
    """Processes on any NVIDIA GPU of the machine; 0 where its driver cannot be asked."""
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return sum(len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) for handle in handles)
    except pynvml.NVMLError:
        return 0
