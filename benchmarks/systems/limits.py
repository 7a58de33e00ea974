"""The quota of CPU time that a container, a job or an administrator sets on this process by a control group.

Both versions of control groups: docs.kernel.org/admin-guide/cgroup-v2.html and scheduler/sched-bwc.html. A process in a
container sees all cores of its machine, and the kernel stops it when its quota of their time is used up.
"""

from __future__ import annotations

import re
from pathlib import Path


def cpu_quota(top: Path = Path("/")) -> tuple[float | None, int]:
    """CPU time per second that this process may take, and how often the kernel has stopped processes for that.

    The narrowest quota of its group and of those around it, as the files below `top` have them; None: there is none.
    """
    quotas, num_throttled = list[float](), 0
    # Version 1 has a line and a folder for each controller, version 2 one line without a name.
    for names, path in re.findall(r"^\d+:([^:\n]*):/*(.*)$", _text(top / "proc/self/cgroup"), re.MULTILINE):
        root = top / "sys/fs/cgroup" / names
        for folder in (it for it in (root / path, *(root / path).parents) if it.is_relative_to(root)):
            old = f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}"
            if quota := re.fullmatch(r"(\d{1,18})\s+0*([1-9]\d{,17})", _text(folder / "cpu.max") or old):
                quotas.append(int(quota[1]) / int(quota[2]))
            if throttled := re.search(r"^nr_throttled (\d{1,18})$", _text(folder / "cpu.stat"), re.MULTILINE):
                num_throttled += int(throttled[1])
    return min(quotas, default=None), num_throttled


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):  # no such file, or a name that none can have
        return ""
