"""What this machine has: CPUs, caches, memory."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from dlscale.benchmarks.collectives.sizes import format_size
from dlscale.benchmarks.record import Setting
from dlscale.models.errors import UsageError

_CACHES = Path("/sys/devices/system/cpu")
_UNKNOWN_CACHE = 64 * 2**20
_ARENAS = 2  # a process has its own memory and, for the ring, as much of the node's


def cpus() -> list[int]:
    """The CPUs that a run may use, ascending; of two threads of a core only the first."""
    allowed = sorted(os.sched_getaffinity(0))
    firsts = {cpu: _first_sibling(cpu) for cpu in allowed}
    return [cpu for cpu in allowed if firsts[cpu] == cpu or firsts[cpu] not in allowed]


def last_level_cache_bytes(cpu: int = 0) -> int:
    """The largest cache that a CPU has a share in."""
    texts = (path.read_text("ascii").strip() for path in _CACHES.glob(f"cpu{cpu}/cache/index*/size"))
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = (int(text[:-1]) * units[text[-1]] for text in texts if re.fullmatch(r"\d+[KMG]", text))
    return max(sizes, default=_UNKNOWN_CACHE)


def describe() -> dict[str, Setting]:
    """Facts that numbers of this benchmark depend on."""
    cpu_info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*: (.*)$", cpu_info, re.MULTILINE)
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "architecture": platform.machine(),
        "cpu_model": model[1] if model else "unknown",
        "num_cpus": len(os.sched_getaffinity(0)),
        "num_cores": len(cpus()),
        "last_level_cache_bytes": last_level_cache_bytes(cpus()[0]),
        "memory_gib": round(_memory("MemTotal") / 2**30),
        "kernel": platform.release(),
        "transparent_huge_pages": _chosen(pages.read_text(encoding="ascii")) if pages.exists() else "none",
    }


def check_memory(num_ranks: int, largest: int, cold_bytes: int) -> None:
    """Returns if the buffers fit into half of what is free. Raises UsageError."""
    needed = num_ranks * _ARENAS * (largest + max(largest, cold_bytes))
    free = _memory("MemAvailable")
    if needed > free / 2:
        raise UsageError(
            f"messages of {format_size(largest)} on {num_ranks} ranks need {format_size(needed)} of memory, and "
            f"{format_size(free)} are free; give smaller sizes, for instance --sizes 4KiB:16MiB:x4"
        )


def _memory(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/meminfo").read_text("ascii"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _first_sibling(cpu: int) -> int:
    path = _CACHES / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        return int(re.split("[,-]", path.read_text(encoding="ascii").strip())[0])
    except (OSError, ValueError):
        return cpu


def _chosen(text: str) -> str:
    """The word in brackets, as the kernel shows a choice."""
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else text.strip()
