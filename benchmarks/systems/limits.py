"""Limits that a container, a job or an administrator sets on this process by a control group of the kernel.

Both versions of control groups: docs.kernel.org/admin-guide/cgroup-v2.html, and cgroup-v1/memory.html and
scheduler/sched-bwc.html there. A process in a container sees all cores of its machine, and the kernel stops it when
its quota of their time is used up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COUNT = r"(\d{1,18})"  # version 1 says that there is no limit by a number of 19 digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The narrowest limits of this process's group and of those around it; None: no limit."""

    cores: float | None  # CPU time per second
    memory_bytes: int | None
    num_throttled: (
        int  # how often the kernel has stopped a group's processes for its quota, since the group was made
    )


def read_limits(top: Path = Path("/")) -> Limits:
    """The limits as the files below `top` have them; none where there are no such files."""
    quotas, sizes, num_throttled = [], [], 0
    for folder in _groups(top, "cpu"):
        text = (
            _text(folder / "cpu.max")
            or f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}"
        )
        if quota := re.fullmatch(rf"{_COUNT}\s+0*([1-9]\d{{,17}})", text):
            quotas.append(int(quota[1]) / int(quota[2]))
        num_throttled += sum(
            map(int, re.findall(rf"^nr_throttled {_COUNT}$", _text(folder / "cpu.stat"), re.MULTILINE))
        )
    for folder in _groups(top, "memory"):
        text = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
        sizes += [int(size) for size in re.findall(rf"^{_COUNT}$", text)]
    return Limits(
        cores=min(quotas, default=None), memory_bytes=min(sizes, default=None), num_throttled=num_throttled
    )


def _groups(top: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's group and of those around it, of version 2, and of a controller of version 1."""
    for names, path in re.findall(r"^\d+:([^:\n]*):/*(.*)$", _text(top / "proc/self/cgroup"), re.MULTILINE):
        if not names or controller in names.split(","):
            root = top / "sys/fs/cgroup" / (controller if names else "")
            group = root / path
            yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):  # no such file, or a name that none can have
        return ""
