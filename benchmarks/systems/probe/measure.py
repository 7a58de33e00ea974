"""Rates that this node reaches: memory bandwidth and matrix products, for bounds and shares of the peak.

They are what PyTorch reaches on all allowed cores, or on one GPU, in the best of many tries: below what a vendor
states, and nearer to what a training can get.

    memory bandwidth = 3 x bytes of an array / seconds of a = b + 2 c      (STREAM's triad; arrays beyond all caches)
    matrix products  = 2 n^3 / seconds of an n x n product, by data type
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.probe.node import Table, fact
from dlscale.models.frameworks import gpu_module

TRY_SECONDS = 1.0  # of each rate
MOST_SECONDS = 5.0  # of the call that warms up
ARRAY_BYTES = 512 << 20  # three of them are needed
SIDE = {"cpu": 2048, "cuda": 8192, "xpu": 8192}  # of a matrix
DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16"}


def measure_cores() -> tuple[Table, list[str]]:
    """The rates of all cores that this process may use, and which took too long. Raises UsageError without PyTorch."""
    torch = _torch()
    before = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    try:
        return _rates(torch, "cpu", lambda: None, has_tf32=False)
    finally:
        torch.set_num_threads(before)


def measure_gpu() -> tuple[Table, list[str]]:
    """The rates of the first GPU; none where PyTorch sees none. Raises UsageError without PyTorch."""
    torch, gpus = _torch(), cast(Any, gpu_module("torch"))
    if not gpus.names():
        return {}, []
    return _rates(torch, gpus.KIND, getattr(torch, gpus.KIND).synchronize, has_tf32=not gpus.without_tf32())


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UsageError("--measure needs PyTorch; install it with: pip install torch") from None
    return torch


def _rates(torch: Any, device: str, wait: Callable[[], None], *, has_tf32: bool) -> tuple[Table, list[str]]:
    arrays = [torch.ones(ARRAY_BYTES // 4, device=device) for _ in range(3)]
    triad = _best_seconds(partial(torch.add, arrays[0], arrays[1], alpha=2.0, out=arrays[2]), wait)
    del arrays
    names = [name for name in DTYPES if has_tf32 or name != "tf32"]
    seconds = {name: _product_seconds(torch, device, name, wait) for name in names}
    slow = ["memory bandwidth"] if triad is None else []
    slow += [f"matrix products in {name}" for name, best in seconds.items() if best is None]
    how = f"measured with PyTorch {torch.__version__}"
    return {
        "memory_bandwidth": fact(triad and f"{3 * ARRAY_BYTES / triad / 1e9:.4g} GB/s", "measured", how),
        "peak": {
            name: fact(f"{2 * SIDE[device] ** 3 / best / 1e12:.3g} TFLOP/s", "measured", how)
            for name, best in seconds.items()
            if best
        },
    }, [f"--measure: {what}: one call took more than {MOST_SECONDS:g} s" for what in slow]


def _product_seconds(torch: Any, device: str, name: str, wait: Callable[[], None]) -> float | None:
    side, dtype = SIDE[device], getattr(torch, DTYPES[name])
    left, right, out = (torch.ones(side, side, device=device, dtype=dtype) for _ in range(3))
    switch = torch.backends.cuda.matmul
    before, switch.allow_tf32 = switch.allow_tf32, name == "tf32"
    try:
        return _best_seconds(partial(torch.mm, left, right, out=out), wait)
    finally:
        switch.allow_tf32 = before


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
