"""Why a launch ended, from what its ranks wrote, what this machine saw and what the launcher said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from dlscale.benchmarks.ends import End
from dlscale.benchmarks.environment import redact
from dlscale.benchmarks.launchers import Death, who_died
from dlscale.benchmarks.record import Failure
from dlscale.benchmarks.spool import RankSpool


def of_an_end(
    status: int, output: str, ends: Sequence[End], spools: Sequence[RankSpool], *, num_ranks: int
) -> Failure | None:
    """The failure of a launch whose launcher ended with that status and output.

    None if it ended well or by a failed gate. `ends` are those of the ranks on this machine, in their order;
    ranks from `num_ranks` on are servers.
    """
    if failure := _death(who_died(output), ends, spools, num_ranks):
        return failure
    if errors := sorted(error for spool in spools for error in _errors(spool)):
        _, rank, message = errors[0]
        return Failure(kind="error", rank=rank, message=redact(message))
    if status not in (0, 3):  # 3: a gate failed
        message = f"mpiexec ended with exit status {status}; {_progress(spools)}"
        return Failure(kind="error", rank=None, message=message)
    return None


def of_a_stall(spools: Sequence[RankSpool], seconds: float) -> Failure:
    """Nobody wrote for that long. A stopped rank is told from those that wait for it by its process state."""
    states = {spool.rank: _state(int(spool.hello["pid"])) for spool in spools if spool.hello}
    stopped = [rank for rank, state in states.items() if state in ("T", "t", "D")]
    missing = [spool.rank for spool in spools if not spool.hello]
    suspects = stopped or missing
    what = {True: "is stopped", False: "never started"}[bool(stopped)] if suspects else ""
    blamed = f"rank {suspects[0]} {what}; " if suspects else ""
    return Failure(
        kind="hang",
        rank=suspects[0] if suspects else None,
        message=f"no rank wrote for {seconds:g} s and the launch was ended; {blamed}{_progress(spools)}",
    )


def _death(
    blamed: Death | None, ends: Sequence[End], spools: Sequence[RankSpool], num_ranks: int
) -> Failure | None:
    """The failure of a rank that died without a word; None if none did, or only after another's abort.

    Such a death comes before the errors of other ranks, which may be its echo. What this machine saw comes before
    whom the launcher blames, whose word counts for other machines and for ranks that never said hello.
    """
    blamed_rank = _rank_of(blamed, spools) if blamed else None
    rank = _first_silent(ends, spools)
    if rank is None:
        if blamed is None or _aborts(spools) or (blamed_rank is not None and _spoke(spools[blamed_rank])):
            return None
        rank = blamed_rank
    how = f" ({blamed.how})" if blamed and rank == blamed_rank else ""
    return Failure(
        kind="killed", rank=rank, message=f"{_name(rank, num_ranks)} died{how}; {_progress(spools)}"
    )


def _first_silent(ends: Sequence[End], spools: Sequence[RankSpool]) -> int | None:
    """The rank that ended first without a word, before any rank aborted the launch."""
    first_abort = min(_aborts(spools), default=math.inf)
    silent = (end.rank for end in ends if end.time < first_abort and not _spoke(spools[end.rank]))
    return next(silent, None)


def _rank_of(death: Death, spools: Sequence[RankSpool]) -> int | None:
    if death.rank is not None:
        return death.rank
    by_pid = (spool.rank for spool in spools if spool.hello and spool.hello["pid"] == death.pid)
    return next(by_pid, None)


def _name(rank: int | None, num_ranks: int) -> str:
    """Servers are the ranks after the workers."""
    if rank is None:
        return "a process that never said its rank"
    return f"rank {rank}" if rank < num_ranks else f"server {rank - num_ranks} (rank {rank})"


def _spoke(spool: RankSpool) -> bool:
    """Whether the rank said why it ended."""
    return bool(spool.of("end") or spool.of("error"))


def _aborts(spools: Sequence[RankSpool]) -> list[float]:
    return [event["time"] for spool in spools for event in spool.of("abort")]


def _errors(spool: RankSpool) -> list[tuple[float, int, str]]:
    return [(event["time"], spool.rank, event["message"]) for event in spool.of("error")]


def _progress(spools: Sequence[RankSpool]) -> str:
    windows = [len(spool.of("window")) for spool in spools]
    return f"finished windows per rank, warm-up steps included: {', '.join(str(n) for n in windows)}"


def _state(pid: int) -> str:
    """The state letter of a local process (R, S, T ...); X if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "X"
    return text.rpartition(")")[2].split()[0]
