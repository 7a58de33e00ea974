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
from dataclasses import dataclass
from functools import partial
from typing import Any

from dlscale.base.errors import UsageError

TRY_SECONDS = 1.0  # of each rate
ARRAY_BYTES = 512 << 20  # three of them are needed
SIDE = {"cpu": 2048, "cuda": 8192}  # of a matrix
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
MEASURED = "measured with PyTorch {version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a node's cores reach, or one GPU. `peaks` are by data type."""

    memory_bytes_per_second: float
    peaks: dict[str, float]  # operations per second
    how: str  # what measured them


def measure_cores() -> Rates:
    """The rates of all cores that this process may use. Raises UsageError without PyTorch."""
    torch = _torch()
    before = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    try:
        return _rates(torch, "cpu", lambda: None)
    finally:
        torch.set_num_threads(before)


def measure_gpu() -> Rates | None:
    """The rates of the first GPU; None where PyTorch sees none. Raises UsageError without PyTorch."""
    torch = _torch()
    return _rates(torch, "cuda", torch.cuda.synchronize) if torch.cuda.is_available() else None


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UsageError("--measure needs PyTorch; install it with: pip install torch") from None
    return torch


def _rates(torch: Any, device: str, wait: Callable[[], None]) -> Rates:
    arrays = [torch.ones(ARRAY_BYTES // 4, device=device) for _ in range(3)]
    triad = _best_seconds(partial(torch.add, arrays[0], arrays[1], alpha=2.0, out=arrays[2]), wait)
    del arrays
    return Rates(
        memory_bytes_per_second=3 * ARRAY_BYTES / triad,
        peaks={name: _product_rate(torch, device, dtype, wait) for name, dtype in DTYPES.items()},
        how=MEASURED.format(version=torch.__version__),
    )


def _product_rate(torch: Any, device: str, dtype: str, wait: Callable[[], None]) -> float:
    side = SIDE[device]
    left, right, out = (torch.ones(side, side, device=device, dtype=getattr(torch, dtype)) for _ in range(3))
    return 2 * side**3 / _best_seconds(partial(torch.mm, left, right, out=out), wait)


def _best_seconds(work: Callable[[], object], wait: Callable[[], None]) -> float:
    """The shortest of the calls that fit into a second, after one that warms up."""
    work()
    wait()
    best = float("inf")
    end = time.perf_counter() + TRY_SECONDS
    while time.perf_counter() < end or best == float("inf"):
        begin = time.perf_counter()
        work()
        wait()
        best = min(best, time.perf_counter() - begin)
    return best
