"""Whether other programs use this machine now."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import pynvml

from dlscale.benchmarks.rank.observers import OtherPrograms
from dlscale.benchmarks.records.record import DISTURBED

READING_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLoad:
    """What other programs use: a share of the time of `num_cores` cores, and processes on GPUs."""

    share: float
    num_cores: int
    num_gpu_processes: int = 0

    @property
    def quiet(self) -> bool:
        return self.share <= DISTURBED and not self.num_gpu_processes

    @property
    def text(self) -> str:
        """`other programs use 0.8 of 2 cores`, and what else is known."""
        parts = [f"other programs use {self.share * self.num_cores:.1f} of {self.num_cores} cores"]
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
        num_gpu_processes=_gpu_processes() if gpus else 0,
    )


def _gpu_processes() -> int:
    """Processes on any NVIDIA GPU of the machine; 0 where its driver cannot be asked."""
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return sum(len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) for handle in handles)
    except pynvml.NVMLError:
        return 0
