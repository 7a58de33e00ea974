"""Whether other ranks' processes on this machine still live: MPI itself does not say.

Ranks of other machines cannot be looked at; there the launcher is the one to end what is left.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from dlscale.collectives.job import ServerSplit

LOOK_SECONDS = 1.0  # between two looks at all processes


class Watch:
    """Looks at the processes of ranks, `{rank: process}`, now and then."""

    def __init__(self, processes: dict[int, int]) -> None:
        self._processes = {rank: pid for rank, pid in processes.items() if not has_ended(pid)}
        self._ended: dict[int, int] = {}
        self._next = 0.0

    def is_gone(self, rank: int) -> bool:
        """Whether that rank's process had ended at the last look."""
        self._look()
        return rank in self._ended

    def gone(self) -> dict[int, int]:
        """The processes of all ranks that had ended."""
        self._look()
        return self._ended

    def _look(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + LOOK_SECONDS
            self._ended |= {rank: pid for rank, pid in self._processes.items() if has_ended(pid)}


def watch_of(job: ServerSplit) -> Watch:
    """A watch of all ranks on this machine; collective over all ranks of `job`."""
    here = platform.node()
    texts = job.tell(f"{os.getpid()} {here}")
    found = {rank: text.partition(" ") for rank, text in enumerate(texts)}
    return Watch({rank: int(pid) for rank, (pid, _, host) in found.items() if host == here})


def has_ended(pid: int) -> bool:
    """Whether there is no such process, or only what is left of it until its parent has looked."""
    try:
        state = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[0]
        )
    except (OSError, IndexError):
        return True
    return state in "ZX"
