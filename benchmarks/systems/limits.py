"""Limits that a container, a job or an administrator sets on this process by a control group of the kernel.

Both versions of control groups: docs.kernel.org/admin-guide/cgroup-v2.html, and cgroup-v1/memory.html and
scheduler/sched-bwc.html there. A process in a container sees all cores of its machine, and the kernel stops it when
its quota of their time is used up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_COUNT = r"(\d{1,18})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The narrowest limits of this process's group and of those around it; None: no limit.

    `num_throttled`: how often the kernel has stopped a group's processes for its quota, since the group was made.
    """

    cores: float | None  # CPU time per second
    num_throttled: int


def read_limits(top: Path = Path("/")) -> Limits:
    """The limits as the files below `top` have them; none where there are no such files."""
    quotas: list[float] = []
    num_throttled = 0
    # Version 1 has a line and a folder for each controller, version 2 one line without a name.
    for names, path in re.findall(r"^\d+:([^:\n]*):/*(.*)$", _text(top / "proc/self/cgroup"), re.MULTILINE):
        root = top / "sys/fs/cgroup" / names
        for folder in (root / path, *(root / path).parents):
            if not folder.is_relative_to(root):
                break
            old = f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}"
            if quota := re.fullmatch(rf"{_COUNT}\s+0*([1-9]\d{{,17}})", _text(folder / "cpu.max") or old):
                quotas.append(int(quota[1]) / int(quota[2]))
            throttled = re.findall(rf"^nr_throttled {_COUNT}$", _text(folder / "cpu.stat"), re.MULTILINE)
            num_throttled += sum(map(int, throttled))
    return Limits(cores=min(quotas, default=None), num_throttled=num_throttled)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):  # no such file, or a name that none can have
        return ""
