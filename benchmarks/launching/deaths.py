"""Who died, by a launcher's last words."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The process that ended first, by the launcher's words: its rank, or (MPICH) its process id."""

    rank: int | None = None
    pid: int | None = None
    how: str


_MPICH = re.compile(r"PID (?P<pid>\d+) RUNNING AT.*?EXIT STRING: (?P<how>[^\n]+)", re.DOTALL)
_OPENMPI_SIGNAL = re.compile(
    r"process rank (?P<rank>\d+) with PID \d+.*?exited\s+on\s+(?P<how>signal \d+)", re.DOTALL
)
_OPENMPI_STATUS = re.compile(r"Process name: \[[^\]]*,(?P<rank>\d+)\].*?Exit code:\s+(?P<how>\d+)", re.DOTALL)
# Slurm, src/srun/launch.c. "tasks 4-7,9" ended alike and at the same time: the first of them stands for all.
_SRUN = re.compile(r"^srun: error: \S+: tasks? (?P<rank>\d+)[-,\d]*: (?P<how>[^\n]+)", re.MULTILINE)
# ALPS, as published logs of Cray XC have it.
_APRUN = re.compile(
    r"^_pmiu_daemon\(SIGCHLD\): .*?PE RANK (?P<rank>\d+) (?P<how>exit [^\n]+)", re.MULTILINE | re.DOTALL
)
# Flux, src/shell/doom.c with exit-on-error.
_FLUX = re.compile(
    r"task rank (?P<rank>\d+) on host \S+ failed(?: \((?P<how>[^\n)]+(?:\([^\n)]*\))?)\))? and exit-on-error"
)


def who_died(output: str) -> Death | None:
    """The process that the launcher's output blames; None if it names none.

    srun reports each death as it hears of it, the first one first. jsrun's words are in no public source.
    """
    if found := _MPICH.search(output):
        return Death(pid=int(found["pid"]), how=found["how"].strip())
    if found := _OPENMPI_STATUS.search(output):
        return Death(rank=int(found["rank"]), how=f"exit status {found['how']}")
    for words in (_OPENMPI_SIGNAL, _SRUN, _APRUN, _FLUX):
        if found := words.search(output):
            return Death(rank=int(found["rank"]), how=(found["how"] or "failed").strip())
    return None
