"""How much memory was asked for and how much there was, from what frameworks say when they get none.

Wordings by version are data of tests/benchmarks/rank/test_out_of_memory.py. TensorFlow and XLA tell what was asked for,
and drivers nothing.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from dlscale.models.frameworks import gpu_module

MEMINFO = Path("/proc/meminfo")
ADVICE = "give a smaller --batch, or another --preset or precision"
GIB = 2**30

_SIZE = r"(\d[\d.]* (?:[KMGTP]iB|bytes))"
_NUMBER = re.compile(r"([\d.]+) ([KMGTP]?)")
_TORCH_GPU = re.compile(rf"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate {_SIZE}")
# Since torch 2.1, and before it; "capacty" was 2.1's.
_TOTAL = re.compile(rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free")
_HELD = re.compile(rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated")
_DRIVER = re.compile(
    r"(?:CUDA|HIP) error: out of memory|Cuda failure[^']*'out of memory'|(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
)
_TENSORFLOW = re.compile(
    r"OOM when allocating tensor with shape\[([\d,]*)\] and type (\w+) on \S*device:(GPU|CPU):"
)
_XLA = re.compile(rf"Out of memory while trying to allocate {_SIZE}")
_HOST = re.compile(
    rf"you tried to allocate {_SIZE}|Unable to allocate {_SIZE} for an array|Cannot allocate memory"
)
_ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "float": 4, "double": 8, "int32": 4, "int64": 8}


def out_of_memory(error: BaseException) -> str | None:
    """What was asked for and what was there, in one line; None if the error is another one."""
    text = str(error)
    if found := _TORCH_GPU.search(text):
        return _on_gpu(found[1], _torch_had(text))
    if _DRIVER.search(text):
        return _on_gpu(None, "the driver tells neither what was asked for nor what was free")
    if found := _TENSORFLOW.search(text):
        shape, kind, device = found.groups()
        size = math.prod(map(int, filter(None, shape.split(",")))) * _ELEMENT_BYTES.get(kind, 0)
        asked = f"{size} bytes" if size else None
        return _on_gpu(asked, _tensorflow_had()) if device == "GPU" else _on_host(asked)
    if found := _XLA.search(text):
        return _on_gpu(found[1], _tensorflow_had())
    if found := _HOST.search(text):
        return _on_host(found[1] or found[2])
    return _on_host(None) if isinstance(error, MemoryError) else None


def _on_gpu(asked: str | None, had: str) -> str:
    return f"out of GPU memory: {_asked(asked)}{had}; {ADVICE}"


def _on_host(asked: str | None) -> str:
    return f"out of memory: {_asked(asked)}{_host_had()}; {ADVICE}, or fewer ranks per node"


def _asked(size: str | None) -> str:
    return f"{_gib(size)} were asked for; " if size else ""


def _torch_had(text: str) -> str:
    total, free, held = (_first(pattern, text) for pattern in (_TOTAL, _FREE, _HELD))
    of_total = f" of {_gib(total)}" if total else ""
    parts = [f"{_gib(free)}{of_total} were free" if free else "torch does not tell what was free" + of_total]
    return ", ".join([*parts, *([f"this rank's tensors had {_gib(held)}"] if held else [])])


def _tensorflow_had() -> str:
    untold = "TensorFlow does not tell what was free"
    try:
        held = gpu_module("tensorflow").peak_memory()["allocated_bytes"]
    except Exception:  # whatever it is: what is to be told is that memory was short
        return untold
    return f"{untold}, this rank's tensors had at most {_gib(f'{held} bytes')}"


def _host_had() -> str:
    """What Linux could give without swapping, now."""
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
        sizes = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines)}
        available, total = (_gib(f"{sizes[name]} KiB") for name in ("MemAvailable", "MemTotal"))
    except (OSError, KeyError, IndexError):
        return "this system does not tell what was free"
    return f"{available} of this machine's {total} were free afterwards"


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found and next(filter(None, found.groups()))


def _gib(size: str) -> str:
    """A size as in the patterns, in GiB."""
    value, prefix = _NUMBER.match(size).groups()  # type: ignore[union-attr]
    return f"{float(value) * 1024 ** ' KMGTP'.index(prefix or ' ') / GIB:.3g} GiB"
