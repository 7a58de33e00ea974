"""Rates that this node reaches: memory bandwidth and matrix products, for bounds and shares of the peak.

They are what PyTorch reaches on all allowed cores, or on one GPU, in the best of many tries: below what a vendor
states, and nearer to what a training can get.

    memory bandwidth = 3 x bytes of an array / seconds of a = b + 2 c      (STREAM's triad; arrays beyond all caches)
    matrix products  = 2 n^3 / seconds of an n x n product, by data type

A rate of which one call takes too long (bf16 on cores without it, a node that others use) is left out, and named.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.probe.node import Gpu, Gpus, most_common
from dlscale.models.frameworks import gpu_module

TRY_SECONDS = 1.0  # of each rate
MOST_SECONDS = 5.0  # of the call that warms up
ARRAY_BYTES = 512 << 20  # three of them are needed
SIDE = {"cpu": 2048, "cuda": 8192, "xpu": 8192}  # of a matrix
DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16"}
MEASURED = "measured with PyTorch {version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a node's cores reach, or one GPU. `peaks` are by data type; None: one call took too long."""

    memory_bytes_per_second: float | None
    peaks: dict[str, float | None]  # operations per second
    how: str  # what measured them

    @property
    def missing(self) -> list[str]:
        """What took too long, in words."""
        rates = {"memory bandwidth": self.memory_bytes_per_second}
        rates |= {f"matrix products in {name}": rate for name, rate in self.peaks.items()}
        return [
            f"{name}: one call took more than {MOST_SECONDS:g} s"
            for name, rate in rates.items()
            if rate is None
        ]


def measure_cores() -> Rates:
    """The rates of all cores that this process may use. Raises UsageError without PyTorch."""
    torch = _torch()
    before = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    try:
        return _rates(torch, "cpu", lambda: None, has_tf32=False)
    finally:
        torch.set_num_threads(before)


def torchs_gpus() -> Gpus | None:
    """The GPUs of any maker that PyTorch sees; None where it sees none. Raises UsageError without PyTorch."""
    gpus: Any = gpu_module("torch")
    kind = getattr(_torch(), gpus.KIND)
    memory = [kind.get_device_properties(index).total_memory for index in range(kind.device_count())]
    found = [Gpu(name, size / 2**30) for name, size in zip(gpus.names(), memory, strict=True)]
    return most_common(found, source="torch", backend=gpus.exchange_library()[0])


def measure_gpu() -> Rates | None:
    """The rates of the first GPU; None where PyTorch sees none. Raises UsageError without PyTorch."""
    torch, gpus = _torch(), cast(Any, gpu_module("torch"))
    if not gpus.names():
        return None
    return _rates(torch, gpus.KIND, getattr(torch, gpus.KIND).synchronize, has_tf32=not gpus.without_tf32())


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UsageError("--measure needs PyTorch; install it with: pip install torch") from None
    return torch


def _rates(torch: Any, device: str, wait: Callable[[], None], *, has_tf32: bool) -> Rates:
    arrays = [torch.ones(ARRAY_BYTES // 4, device=device) for _ in range(3)]
    triad = _best_seconds(partial(torch.add, arrays[0], arrays[1], alpha=2.0, out=arrays[2]), wait)
    del arrays
    return Rates(
        memory_bytes_per_second=triad and 3 * ARRAY_BYTES / triad,
        peaks={
            name: _product_rate(torch, device, name, wait) for name in DTYPES if has_tf32 or name != "tf32"
        },
        how=MEASURED.format(version=torch.__version__),
    )


def _product_rate(torch: Any, device: str, name: str, wait: Callable[[], None]) -> float | None:
    side, dtype = SIDE[device], getattr(torch, DTYPES[name])
    left, right, out = (torch.ones(side, side, device=device, dtype=dtype) for _ in range(3))
    switch = torch.backends.cuda.matmul
    before, switch.allow_tf32 = switch.allow_tf32, name == "tf32"
    try:
        seconds = _best_seconds(partial(torch.mm, left, right, out=out), wait)
    finally:
        switch.allow_tf32 = before
    return seconds and 2 * side**3 / seconds


def _best_seconds(work: Callable[[], object], wait: Callable[[], None]) -> float | None:
    """The shortest of the calls that fit into a second, after one that warms up; None if that one takes too long."""

    def call() -> float:
        begin = time.perf_counter()
        work()
        wait()
        return time.perf_counter() - begin

    if call() > MOST_SECONDS:
        return None
    end = time.perf_counter() + TRY_SECONDS
    best = call()
    while time.perf_counter() < end:
        best = min(best, call())
    return best
