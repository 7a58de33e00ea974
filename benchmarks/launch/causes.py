"""Why a launch ended, from what its ranks wrote, what this machine saw and what the launcher printed.

A launcher ends all ranks as soon as one is gone, and then blames the one whose exit status it happens to read
first, which on a busy machine is often a survivor. The kernel knows better: epoll hands out the ends of
processes in the order in which they came, however late it is asked (`EndWatch`).
"""

from __future__ import annotations

import math
import os
import platform
import re
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dlscale.base.files import open_regular
from dlscale.base.launchers import LAUNCHERS
from dlscale.base.redaction import redact
from dlscale.benchmarks.records.record import Failure
from dlscale.benchmarks.records.spool import (
    Abort,
    MeasuredWindow,
    RankEnd,
    RankError,
    RankInfo,
    RankSpool,
    parse_event,
)


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
    failure = _failure_of_an_end(status, output, ends, spools, num_ranks)
    if failure is None:
        return None
    if (silent := _first_stopped(output, failure, stopped)) is not None:
        message = f"{_name(silent, num_ranks)} is stopped, and so ended the launch; {failure.message}"
        return Failure(kind="hang", rank=silent, message=message)
    parts = [failure.message, last_words(output, spools), _shared_memory_hint(f"{output} {failure.message}")]
    if not _any_rank_wrote(spools) and " " in platform.node():
        parts.append(
            f"this machine's name, {platform.node()!r}, has a blank, with which launchers start no ranks"
        )
    return failure.model_copy(update={"message": "; ".join(filter(None, parts))})


def _any_rank_wrote(spools: Sequence[RankSpool]) -> bool:
    return any(spool.events for spool in spools)


_COMPLAINT = re.compile(
    r"error|fail|fatal|invalid|denied|refused|unknown|unable|not found|no such|(?:can|could|did|does) ?not",
    re.IGNORECASE,
)
_LONGEST_WORDS = 200


def last_words(output: str, spools: Sequence[RankSpool]) -> str:
    """What a launch complained of that ended before any rank could say why; empty where one wrote, or nothing was said.

    The first complaint is the cause, those after it are its echo.
    """
    if _any_rank_wrote(spools):
        return ""
    # Without [proxy:0@node], times and process numbers.
    lines = [" ".join(re.sub(r"^(?:\[[^\]]*\]\s*)+", "", line).split()) for line in output.splitlines()]
    lines = [line for line in lines if line]
    complaint = next(filter(_COMPLAINT.search, lines), lines[-1] if lines else "")
    return f"it printed: {redact(complaint)[:_LONGEST_WORDS]}" if complaint else ""


def _failure_of_an_end(
    status: int, output: str, ends: Sequence[End], spools: Sequence[RankSpool], num_ranks: int
) -> Failure | None:
    if failure := _death(who_died(output), ends, spools, num_ranks):
        return failure
    errors = [(error.time, spool.rank, error.message) for spool in spools for error in spool.of(RankError)]
    if errors:
        _, rank, message = min(errors)
        return Failure(kind="error", rank=rank, message=redact(message))
    if status:
        message = f"the launcher ended with exit status {status}; {_progress(spools)}"
        return Failure(kind="error", rank=None, message=message)
    return None


# TensorFlow's coordination service, of a task that is silent for about 20 s; then it ends the healthy ones.
_SILENT_TASK = re.compile(
    r"tasks are unhealthy \(stopped sending heartbeats\):\s*/job:worker/replica:\d+/task:(?P<task>\d+)"
)


def _first_stopped(output: str, failure: Failure, stopped: Sequence[int]) -> int | None:
    """The rank that others gave up on, by this machine's sight or TensorFlow's word; None if it is blamed already."""
    match = _SILENT_TASK.search(output)
    suspects = [*stopped, *([int(match["task"])] if match else [])]
    return suspects[0] if suspects and failure.rank not in suspects else None


SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only asked for its size
_NO_SHARED_MEMORY = re.compile(
    r"\bbus error\b|\bsignal 7\b|\bSIGBUS\b|"
    r"(?:/dev/shm|shared memory|shm_)[^\n]*(?:No space left|Cannot allocate|Read-only|Permission denied)",
    re.IGNORECASE,
)


def _shared_memory_hint(text: str) -> str:
    """What to do if that output may come of a /dev/shm that is full (the kernel tells it by a bus error) or closed."""
    if not _NO_SHARED_MEMORY.search(text):
        return ""
    if not os.access(SHARED_MEMORY, os.W_OK):
        return f"{SHARED_MEMORY} cannot be written, and ranks exchange through it: mount it writable"
    try:
        room = os.statvfs(SHARED_MEMORY)
    except OSError:
        return f"{SHARED_MEMORY} cannot be used"
    size, free = (blocks * room.f_frsize / 2**20 for blocks in (room.f_blocks, room.f_bavail))
    return (
        f"{SHARED_MEMORY} has {size:.0f} MiB, {free:.0f} of them free now, and a program that finds it full dies so: "
        "remove what others left there, or enlarge it (docker run --shm-size=1g)"
    )


SHORTEST_STALL = 60.0  # a file system may be away for that long
STALL_INTERVALS = 30
_LEAST_WINDOWS = 3


def learnt_stall(spools: Sequence[RankSpool]) -> float:
    """Seconds without a heartbeat after which a launch hangs, judged by its windows; infinite if they say nothing.

    Between the windows of a case nothing takes much longer than it did before. All else may: imports, gates,
    compilation, the end of a case.
    """
    longest = 0.0
    for spool in spools:
        case, last = spool.events[-1] if spool.events else (None, None)
        if not isinstance(last, MeasuredWindow) or last.phase != "steady":
            return math.inf
        windows = [window for window in spool.of(MeasuredWindow, case) if window.phase == "steady"]
        if len(windows) < _LEAST_WINDOWS:
            return math.inf
        starts = [window.start for window in windows]
        longest = max(longest, *(after - before for before, after in pairwise(starts)), last.seconds)
    return max(SHORTEST_STALL, STALL_INTERVALS * longest) if longest else math.inf


def is_over(ends: Sequence[End], spools: Sequence[RankSpool]) -> bool:
    """Whether nothing more can come of a launch, whatever its launcher does: all ranks have ended, or one has died."""
    return len(ends) == len(spools) or any(not _reported_end(spools[end.rank]) for end in ends)


def failure_of_a_stall(
    spools: Sequence[RankSpool], seconds: float, *, launcher: Sequence[int] = (), output: str = ""
) -> Failure:
    """The failure of a launch that wrote nothing for that long.

    A stopped rank differs from those that wait for it by its process state. `launcher` are the processes between.
    """
    states = {spool.rank: _state(info.pid) for spool in spools if (info := spool.info)}
    stopped = [rank for rank, state in states.items() if state in ("T", "t", "D")]
    missing = [spool.rank for spool in spools if not spool.info]
    suspects = stopped or missing
    what = {True: "is stopped", False: "never started"}[bool(stopped)] if suspects else ""
    blamed = f"rank {suspects[0]} {what}; " if suspects else ""
    if not stopped and any(_state(pid) in ("T", "t") for pid in launcher):
        blamed = f"the launcher is stopped; {blamed}"
    message = f"no rank wrote for {seconds:g} s and the launch was ended; {blamed}{_progress(spools)}"
    words = last_words(output, spools)
    return Failure(
        kind="hang", rank=suspects[0] if suspects else None, message="; ".join(filter(None, [message, words]))
    )


def _death(
    blamed: Death | None, ends: Sequence[End], spools: Sequence[RankSpool], num_ranks: int
) -> Failure | None:
    """The failure of a rank that died without an error; None if none did, or only after another's abort.

    Such a death comes before the errors of other ranks, which may be its echo. What this machine saw comes before
    whom the launcher blames, whose word counts for other machines and for ranks that never wrote.
    """
    blamed_rank = _rank_of(blamed, spools) if blamed else None
    rank = _first_silent(ends, spools)
    if rank is None:
        if (
            blamed is None
            or _aborts(spools)
            or (blamed_rank is not None and _reported_end(spools[blamed_rank]))
        ):
            return None
        rank = blamed_rank
    how = f" ({blamed.how})" if blamed and rank == blamed_rank else ""
    return Failure(
        kind="killed", rank=rank, message=f"{_name(rank, num_ranks)} died{how}; {_progress(spools)}"
    )


def _first_silent(ends: Sequence[End], spools: Sequence[RankSpool]) -> int | None:
    """The rank that ended first without an error or an end, before any rank aborted the launch."""
    first_abort = min(_aborts(spools), default=math.inf)
    silent = (end.rank for end in ends if end.time < first_abort and not _reported_end(spools[end.rank]))
    return next(silent, None)


def _rank_of(death: Death, spools: Sequence[RankSpool]) -> int | None:
    if death.rank is not None:
        return death.rank
    by_pid = (spool.rank for spool in spools if spool.info and spool.info.pid == death.pid)
    return next(by_pid, None)


def _name(rank: int | None, num_ranks: int) -> str:
    """Servers are the ranks after the workers."""
    if rank is None:
        return "a process that never said its rank"
    return f"rank {rank}" if rank < num_ranks else f"server {rank - num_ranks} (rank {rank})"


def _reported_end(spool: RankSpool) -> bool:
    """Whether the rank wrote why it ended."""
    return bool(spool.of(RankEnd) or spool.of(RankError))


def _aborts(spools: Sequence[RankSpool]) -> list[float]:
    return [abort.time for spool in spools for abort in spool.of(Abort)]


def _progress(spools: Sequence[RankSpool]) -> str:
    windows = [len(spool.of(MeasuredWindow)) for spool in spools]
    return f"finished windows per rank, warm-up steps included: {', '.join(str(n) for n in windows)}"


def _state(pid: int) -> str:
    """The state letter of a local process (R, S, T ...); X if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "X"
    return text.rpartition(")")[2].split()[0]


@dataclass(frozen=True, slots=True)
class End:
    """A rank's process ended, for whatever reason; `time` is when that was noticed, seconds since the epoch."""

    rank: int
    time: float


LONGEST_LINE = 1 << 16  # of a spool's first event
STATE_SECONDS = 1.0


class EndWatch:
    """The ends of a launch's processes on this machine, in their order.

    Ranks on other machines are not seen, nor those that end within one `look` of their first line.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is the launch's spool, which each of its processes has on its command line."""
        self._folder = folder
        self._epoll = select.epoll()
        self._ranks: dict[int, int] = {}  # by descriptor of the process
        self._known: set[Path] = set()
        self._ends: list[End] = []
        self._pids: dict[int, int] = {}  # by rank, of those on this machine
        self._stopped: list[int] = []
        self._asked = -math.inf  # when the ranks' states were, on the monotonic clock

    def __enter__(self) -> EndWatch:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._ranks:
            os.close(descriptor)
        self._epoll.close()

    def look(self) -> list[End]:
        """Watch the ranks that have written their process id since the last look; all ends so far, in order."""
        for rank, pid in self._new():
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                self._ranks[descriptor] = rank
                # Asked after the descriptor is there: the id can no longer go to another process.
                if self._is_ours(pid):
                    self._pids[rank] = pid
                    self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        if self._ranks:
            self._look_for_stops()
            seen = self._epoll.poll(0, len(self._ranks))
            self._ends += [End(self._ranks[descriptor], time.time()) for descriptor, _ in seen]
        return self._ends

    @property
    def stopped(self) -> list[int]:
        """The ranks that were stopped shortly before the first of them ended, or are now."""
        return self._stopped

    def _look_for_stops(self) -> None:
        """Once a second: a stop that others give up on takes longer."""
        now = time.monotonic()
        if not self._ends and now > self._asked + STATE_SECONDS:
            self._asked = now
            self._stopped = [rank for rank, pid in self._pids.items() if _state(pid) in ("T", "t")]

    def _new(self) -> Iterator[tuple[int, int]]:
        for path in self._folder.glob("rank-*.jsonl"):
            if path in self._known:
                continue
            try:
                with os.fdopen(open_regular(path), "rb") as file:
                    line = file.readline(LONGEST_LINE)
            except OSError:
                continue
            if line.endswith(b"\n"):
                self._known.add(path)
                with suppress(ValueError):  # damaged, as whoever reads the whole spool will see
                    _, event = parse_event(line)
                    if isinstance(event, RankInfo):
                        yield int(path.stem.removeprefix("rank-")), event.pid

    def _is_ours(self, pid: int) -> bool:
        """False for a process of another machine whose number is also one of ours, and for one that has ended."""
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return os.fsencode(self._folder) in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The process that ended first, by the launcher's output: its rank, or (MPICH) its process id."""

    rank: int | None = None
    pid: int | None = None
    how: str


_MPICH = re.compile(r"PID (?P<pid>\d+) RUNNING AT.*?EXIT STRING: (?P<how>[^\n]+)", re.DOTALL)
_OPENMPI_STATUS = re.compile(r"Process name: \[[^\]]*,(?P<rank>\d+)\].*?Exit code:\s+(?P<how>\d+)", re.DOTALL)


def who_died(output: str) -> Death | None:
    """The process that the launcher's output blames; None if it names none."""
    if match := _MPICH.search(output):
        return Death(pid=int(match["pid"]), how=match["how"].strip())
    if match := _OPENMPI_STATUS.search(output):
        return Death(rank=int(match["rank"]), how=f"exit status {match['how']}")
    for pattern in (launcher.death for launcher in LAUNCHERS.values()):
        if pattern and (match := pattern.search(output)):
            return Death(rank=int(match["rank"]), how=" ".join((match["how"] or "failed").split()))
    return None
