"""Why a launch ended, from what its ranks wrote, what this machine saw and what the launcher printed.

A launcher ends all ranks as soon as one is gone, and then blames the one whose exit status it reads first, which on a
busy machine is often a survivor. So what this machine saw comes first, in the order in which it happened.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlscale.base.launchers import LAUNCHERS
from dlscale.base.strings import redact
from dlscale.benchmarks.records.record import Failure
from dlscale.benchmarks.records.spool import Abort, RankEnd, RankError, RankSpool

# How launchers tell of the process that ended first: its rank, or (MPICH) its process id, and how.
DEATHS = (
    re.compile(r"PID (?P<pid>\d+) RUNNING AT.*?EXIT STRING: (?P<how>[^\n]+)", re.DOTALL),
    re.compile(r"Process name: \[[^\]]*,(?P<rank>\d+)\].*?(?P<how>Exit code:\s+\d+)", re.DOTALL),  # Open MPI
    *(launcher.death for launcher in LAUNCHERS.values() if launcher.death),
)
LONGEST_WORDS = 200


class Death(NamedTuple):
    """The process that ended first, by the launcher's output: its rank, or (MPICH) its process id."""

    how: str
    rank: int | None = None
    pid: int | None = None


def why_it_ended(
    output: str,
    spools: Sequence[RankSpool],
    *,
    status: int = 0,
    silence: float = 0.0,
    ends: Mapping[int, float],
    stopped: Sequence[int] = (),
) -> Failure | None:
    """The failure of a launch, whose launcher printed `output` and ended with that status.

    `silence`: seconds without a heartbeat, after which it was ended. `ends`: the ranks of this machine that have ended,
    in their order, each with the time at which that was noticed. `stopped`: those that were stopped when the first one
    ended, or now. None if the launch ended well or by a failed gate.
    """
    failure = _death(output, spools, ends)
    errors = [(error.time, spool.rank, error.message) for spool in spools for error in spool.of(RankError)]
    if failure is None and errors:
        _, rank, message = min(errors)
        failure = Failure(kind="error", rank=rank, message=redact(message))
    elif failure is None and silence:
        absent = [spool.rank for spool in spools if not spool.info]
        message = f"no rank wrote for {silence:.0f} s and the launch was ended"
        message += f"; rank {absent[0]} never started" if absent else ""
        failure = Failure(kind="hang", rank=next(iter(absent), None), message=message)
    elif failure is None and status:
        message = f"the launcher ended with exit status {status}"
        failure = Failure(kind="error", rank=None, message=message)
    if failure is None:
        return None
    if stopped and failure.rank not in stopped:  # the others gave up on it
        message = f"rank {stopped[0]} is stopped; {failure.message}"
        failure = Failure(kind="hang", rank=stopped[0], message=message)
    words = last_words(output, spools)
    return failure.model_copy(update={"message": "; ".join(filter(None, [failure.message, words]))})


def who_died(output: str) -> Death | None:
    """The process that the launcher's output blames; None if it names none."""
    match = next(filter(None, (pattern.search(output) for pattern in DEATHS)), None)
    if match is None:
        return None
    found = match.groupdict()
    numbers = {name: int(found[name]) for name in ("rank", "pid") if found.get(name)}
    return Death(" ".join((found["how"] or "failed").split()), **numbers)


def last_words(output: str, spools: Sequence[RankSpool]) -> str:
    """The end of what a launch printed that ended before any rank wrote; empty where one did, or nothing is there."""
    words = "" if any(spool.events for spool in spools) else redact(" ".join(output.split()))
    return f"it printed: {words[-LONGEST_WORDS:]}" if words else ""


def _death(output: str, spools: Sequence[RankSpool], ends: Mapping[int, float]) -> Failure | None:
    """The failure of a rank that died without an error; None if none did, or only after another's abort.

    Such a death comes before the errors of other ranks, which may be its echo. The launcher's word counts for other
    machines and for ranks that never wrote.
    """
    blamed = who_died(output)
    by_pid = {spool.info.pid: spool.rank for spool in spools if spool.info}
    blamed_rank = by_pid.get(blamed.pid or 0, blamed.rank) if blamed else None
    reported = {spool.rank for spool in spools if [*spool.of(RankEnd), *spool.of(RankError)]}
    aborts = [abort.time for spool in spools for abort in spool.of(Abort)]
    first_abort = min(aborts, default=math.inf)
    rank = next((rank for rank, end in ends.items() if end < first_abort and rank not in reported), None)
    if rank is None:
        if not blamed or aborts or blamed_rank in reported:
            return None
        rank = blamed_rank
    how = f" ({blamed.how})" if blamed and rank == blamed_rank else ""
    name = "a process that never said its rank" if rank is None else f"rank {rank}"
    return Failure(kind="killed", rank=rank, message=f"{name} died{how}")
