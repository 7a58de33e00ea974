"""Why a launch ended, from what its ranks wrote, what this machine saw and what the launcher printed.

A launcher ends all ranks as soon as one is gone, and then blames the one whose exit status it happens to read first,
which on a busy machine is often a survivor. So what this machine saw comes first, in the order in which it happened.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import psutil

from dlscale.base.launchers import LAUNCHERS
from dlscale.base.redaction import redact
from dlscale.benchmarks.records.record import Failure
from dlscale.benchmarks.records.spool import Abort, MeasuredWindow, RankEnd, RankError, RankSpool

# How launchers tell of the process that ended first: its rank, or (MPICH) its process id, and how.
DEATHS = (
    re.compile(r"PID (?P<pid>\d+) RUNNING AT.*?EXIT STRING: (?P<how>[^\n]+)", re.DOTALL),
    re.compile(r"Process name: \[[^\]]*,(?P<rank>\d+)\].*?(?P<how>Exit code:\s+\d+)", re.DOTALL),  # Open MPI
    *(launcher.death for launcher in LAUNCHERS.values() if launcher.death),
)
# TensorFlow's coordination service, of a task that is silent for about 20 s; then it ends the healthy ones.
SILENT_TASK = re.compile(
    r"tasks are unhealthy \(stopped sending heartbeats\):\s*/job:worker/replica:\d+/task:(?P<rank>\d+)"
)
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - only asked for its size
# What else the output shows, and what to do about it. The kernel tells by a bus error that shared memory is full.
HINTS = (
    (
        re.compile(
            r"\bbus error\b|\bsignal 7\b|\bSIGBUS\b|"
            r"(?:/dev/shm|shared memory|shm_)[^\n]*(?:No space left|Cannot allocate)",
            re.IGNORECASE,
        ),
        "{shared_memory}, and a program that finds it full dies so: remove what others left there, or enlarge it "
        "(docker run --shm-size=1g)",
    ),
    (
        re.compile(r"(?:/dev/shm|shared memory|shm_)[^\n]*(?:Read-only|Permission denied)", re.IGNORECASE),
        "ranks exchange through {shared_memory}: mount it writable",
    ),
)
COMPLAINT = re.compile(
    r"error|fail|fatal|invalid|denied|refused|unknown|unable|not found|no such|(?:can|could|did|does) ?not",
    re.IGNORECASE,
)
LONGEST_WORDS = 200
SHORTEST_STALL = 60.0  # a file system may be away for that long
STALL_INTERVALS = 30
LEAST_WINDOWS = 3
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


@dataclass(frozen=True, slots=True)
class End:
    """A rank's process ended, for whatever reason; `time` is when that was noticed, seconds since the epoch."""

    rank: int
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The process that ended first, by the launcher's output: its rank, or (MPICH) its process id."""

    rank: int | None = None
    pid: int | None = None
    how: str


def failure_of_an_end(
    status: int,
    output: str,
    ends: Sequence[End],
    spools: Sequence[RankSpool],
    *,
    num_ranks: int,
    stopped: Sequence[int] = (),
) -> Failure | None:
    """The failure of a launch whose launcher ended with that status and output.

    None if it ended well or by a failed gate. `ends` are those of the ranks on this machine, in their order;
    ranks from `num_ranks` on are servers, `stopped` were stopped when the first rank ended.
    """
    failure = _death(output, ends, spools, num_ranks) or _error(spools)
    if failure is None and status:
        message = f"the launcher ended with exit status {status}; {_progress(spools)}"
        failure = Failure(kind="error", rank=None, message=message)
    if failure is None:
        return None
    silent = SILENT_TASK.search(output)
    suspects = [*stopped, *([int(silent["rank"])] if silent else [])]
    if suspects and failure.rank not in suspects:  # which others gave up on
        message = f"{_name(suspects[0], num_ranks)} is stopped, and so ended the launch; {failure.message}"
        return Failure(kind="hang", rank=suspects[0], message=message)
    parts = [failure.message, last_words(output, spools), *_hints(f"{output} {failure.message}")]
    return failure.model_copy(update={"message": "; ".join(filter(None, parts))})


def failure_of_a_stall(
    spools: Sequence[RankSpool], seconds: float, *, launcher: Iterable[int] = (), output: str = ""
) -> Failure:
    """The failure of a launch that wrote nothing for that long.

    A stopped rank differs from those that wait for it by its process state. `launcher` are the processes between.
    """
    stuck = (*STOPPED, psutil.STATUS_DISK_SLEEP)
    stopped = [spool.rank for spool in spools if spool.info and status_of(spool.info.pid) in stuck]
    missing = [spool.rank for spool in spools if not spool.info]
    suspect = next(iter(stopped or missing), None)
    parts = [f"no rank wrote for {seconds:g} s and the launch was ended"]
    if not stopped and any(status_of(pid) in STOPPED for pid in launcher):
        parts.append("the launcher is stopped")
    if suspect is not None:
        parts.append(f"rank {suspect} {'is stopped' if stopped else 'never started'}")
    parts += [_progress(spools), last_words(output, spools)]
    return Failure(kind="hang", rank=suspect, message="; ".join(filter(None, parts)))


def who_died(output: str) -> Death | None:
    """The process that the launcher's output blames; None if it names none."""
    match = next(filter(None, (pattern.search(output) for pattern in DEATHS)), None)
    if match is None:
        return None
    found = match.groupdict()
    how = " ".join((found["how"] or "failed").split())
    return Death(**{name: int(found[name]) for name in ("rank", "pid") if found.get(name)}, how=how)


def last_words(output: str, spools: Sequence[RankSpool]) -> str:
    """What a launch complained of that ended before any rank could say why; empty where one wrote, or nothing is there.

    The first complaint is the cause, those after it are its echo.
    """
    if any(spool.events for spool in spools):
        return ""
    # Without [proxy:0@node], times and process numbers.
    lines = [" ".join(re.sub(r"^(?:\[[^\]]*\]\s*)+", "", line).split()) for line in output.splitlines()]
    lines = [line for line in lines if line]
    complaint = next(filter(COMPLAINT.search, lines), lines[-1] if lines else "")
    return f"it printed: {redact(complaint)[:LONGEST_WORDS]}" if complaint else ""


def is_over(ends: Sequence[End], spools: Sequence[RankSpool]) -> bool:
    """Whether nothing more can come of a launch, whatever its launcher does: all ranks have ended, or one has died."""
    return len(ends) == len(spools) or any(not _reported_end(spools[end.rank]) for end in ends)


def learnt_stall(spools: Sequence[RankSpool]) -> float:
    """Seconds without a heartbeat after which a launch hangs, judged by its windows; infinite if they say nothing.

    Between the windows of a case nothing takes much longer than it did before. All else may: imports, gates,
    compilation, the end of a case.
    """
    longest = 0.0
    for spool in spools:
        case, last = spool.events[-1] if spool.events else (None, None)
        windows = [window for window in spool.of(MeasuredWindow, case) if window.phase == "steady"]
        if len(windows) < LEAST_WINDOWS or last is not windows[-1]:
            return math.inf
        gaps = (after.start - before.start for before, after in pairwise(windows))
        longest = max(longest, *gaps, windows[-1].seconds)
    return max(SHORTEST_STALL, STALL_INTERVALS * longest)


def status_of(pid: int) -> str:
    """A local process's state, by psutil's name; empty if it is gone."""
    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return ""


def _death(output: str, ends: Sequence[End], spools: Sequence[RankSpool], num_ranks: int) -> Failure | None:
    """The failure of a rank that died without an error; None if none did, or only after another's abort.

    Such a death comes before the errors of other ranks, which may be its echo. The launcher's word counts for other
    machines and for ranks that never wrote.
    """
    blamed = who_died(output)
    by_pid = {spool.info.pid: spool.rank for spool in spools if spool.info}
    blamed_rank = by_pid.get(blamed.pid or 0, blamed.rank) if blamed else None
    aborts = [abort.time for spool in spools for abort in spool.of(Abort)]
    first_abort = min(aborts, default=math.inf)
    silent = (end.rank for end in ends if end.time < first_abort and not _reported_end(spools[end.rank]))
    rank = next(silent, None)
    if rank is None:
        if not blamed or aborts or (blamed_rank is not None and _reported_end(spools[blamed_rank])):
            return None
        rank = blamed_rank
    how = f" ({blamed.how})" if blamed and rank == blamed_rank else ""
    message = f"{_name(rank, num_ranks)} died{how}; {_progress(spools)}"
    return Failure(kind="killed", rank=rank, message=message)


def _error(spools: Sequence[RankSpool]) -> Failure | None:
    """The failure by the first error that a rank wrote; None if none did."""
    errors = [(error.time, spool.rank, error.message) for spool in spools for error in spool.of(RankError)]
    if not errors:
        return None
    _, rank, message = min(errors)
    return Failure(kind="error", rank=rank, message=redact(message))


def _hints(text: str) -> list[str]:
    try:
        size, _, free = (number >> 20 for number in shutil.disk_usage(SHARED_MEMORY))
        shared_memory = f"{SHARED_MEMORY} has {size} MiB, {free} of them free now"
    except OSError:
        shared_memory = f"{SHARED_MEMORY} cannot be used"
    return [hint.format(shared_memory=shared_memory) for pattern, hint in HINTS if pattern.search(text)]


def _name(rank: int | None, num_ranks: int) -> str:
    """Servers are the ranks after the workers."""
    if rank is None:
        return "a process that never said its rank"
    return f"rank {rank}" if rank < num_ranks else f"server {rank - num_ranks} (rank {rank})"


def _reported_end(spool: RankSpool) -> bool:
    """Whether the rank wrote why it ended."""
    return bool(spool.of(RankEnd) or spool.of(RankError))


def _progress(spools: Sequence[RankSpool]) -> str:
    windows = [len(spool.of(MeasuredWindow)) for spool in spools]
    return f"finished windows per rank, warm-up steps included: {', '.join(str(n) for n in windows)}"
