"""A rank as a process: which one it is, by its launcher, its cores, and its end with its parent.

Imports nothing heavy: it runs before anything can start a thread.
"""

from __future__ import annotations

import ctypes
import os
import signal

from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def local_rank() -> int:
    """This process's rank on its node, as the launcher says; 0 outside a launcher."""
    names = (name for launcher in LAUNCHERS.values() for name in launcher.local_ranks)
    return next((int(os.environ[name]) for name in names if name in os.environ), 0)


def launched_rank() -> int:
    """This process's rank, as the launcher says. Raises UsageError where none says so."""
    names = [name for launcher in LAUNCHERS.values() for name in launcher.ranks]
    return int(os.environ[_given(names, "its rank")])


def require_local_rank(ranks_per_node: int) -> None:
    """Return if this process knows its rank on its node, or is alone there; aprun, which says none, binds ranks itself.

    Raises UsageError: otherwise all would take the first cores.
    """
    names = [name for launcher in LAUNCHERS.values() for name in launcher.local_ranks or launcher.ranks]
    if ranks_per_node > 1:
        _given(names, f"which of {ranks_per_node} ranks of its node it is")


def _given(names: list[str], what: str) -> str:
    """The first of these variables that a launcher has set. Raises UsageError if it set none."""
    for name in names:
        if name in os.environ:
            return name
    raise UsageError(
        f"no launcher told this process {what} (it has none of {', '.join(names)}); "
        f"start it with one of: {', '.join(LAUNCHERS)}"
    )


def bind(cores_per_rank: int, *, num_workers: int) -> list[int]:
    """Bind this process to the cores of its local rank, and return them.

    Think of the allowed cores in ascending order as one row: local rank r takes the next `cores_per_rank`
    from r * cores_per_rank on, starting over at the row's end when ranks exceed cores. Ranks from `num_workers` on are
    servers: they share what the workers leave, or all cores where nothing is left. Where the launcher has bound this
    process already, to the hardware threads that DLSCALE_CPUS_PER_RANK counts, the whole row is its own.
    """
    allowed = sorted(os.sched_getaffinity(0))
    own = len(allowed) <= int(os.environ.get("DLSCALE_CPUS_PER_RANK", "0"))
    rank = 0 if own else local_rank()
    if own or rank < num_workers:
        first = rank * cores_per_rank
        cores = sorted({allowed[(first + offset) % len(allowed)] for offset in range(cores_per_rank)})
    else:
        cores = allowed[num_workers * cores_per_rank :] or allowed
    os.sched_setaffinity(0, cores)
    return cores


def end_with_parent() -> None:
    """From now on the kernel ends this process, stopped or not, when its parent has ended, for whatever reason."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
