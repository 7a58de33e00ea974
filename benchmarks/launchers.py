"""From a program and a number of ranks to the exact command line, and from its output to who died.

One function per spelling; tests pin each as a whole string.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Flavour = Literal["mpich", "intelmpi", "openmpi"]

# Where each launcher tells a process its rank on the node and how many ranks it started.
LOCAL_RANK_VARIABLES = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")


def flavour_of(version_text: str) -> Flavour | None:
    """Which MPI's launcher printed this for --version; None if it is neither that we know."""
    if "Intel(R) MPI" in version_text:
        return "intelmpi"
    if "HYDRA" in version_text or "MPICH" in version_text:
        return "mpich"
    if "Open MPI" in version_text or "OpenRTE" in version_text or "PRRTE" in version_text:
        return "openmpi"
    return None


def mpiexec(
    flavour: Flavour,
    mpiexec: Path,
    *,
    num_ranks: int,
    oversubscribed: bool,
    variables: Mapping[str, str],
    program: Sequence[str],
) -> list[str]:
    """The command line that starts `program` on `num_ranks` ranks of this machine.

    Neither launcher binds: each rank binds itself to its own cores before anything starts a thread
    (`affinity.py`), the same way under every launcher.
    """
    if flavour in ("mpich", "intelmpi"):
        sets = [word for name, value in variables.items() for word in ("-genv", name, value)]
        # Intel's launcher binds by itself; 2021.14 knows no option against it.
        unbound = ["-bind-to", "none"] if flavour == "mpich" else ["-genv", "I_MPI_PIN", "0"]
        return [str(mpiexec), "-n", str(num_ranks), *unbound, *sets, *program]
    sets = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
    if os.geteuid() == 0:
        sets.append("--allow-run-as-root")
    mapping = ["--map-by", "slot:OVERSUBSCRIBE"] if oversubscribed else []
    return [str(mpiexec), "-n", str(num_ranks), "--bind-to", "none", *mapping, *sets, *program]


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The process that ended first, by the launcher's words: its rank (Open MPI) or its process id (MPICH)."""

    rank: int | None = None
    pid: int | None = None
    how: str


_MPICH = re.compile(r"PID (?P<pid>\d+) RUNNING AT.*?EXIT STRING: (?P<how>[^\n]+)", re.DOTALL)
_OPENMPI_SIGNAL = re.compile(
    r"process rank (?P<rank>\d+) with PID \d+.*?exited\s+on\s+(?P<how>signal \d+)", re.DOTALL
)
_OPENMPI_STATUS = re.compile(r"Process name: \[[^\]]*,(?P<rank>\d+)\].*?Exit code:\s+(?P<how>\d+)", re.DOTALL)


def who_died(output: str) -> Death | None:
    """The process that the launcher's output blames; None if it names none."""
    if found := _MPICH.search(output):
        return Death(pid=int(found["pid"]), how=found["how"].strip())
    if found := _OPENMPI_SIGNAL.search(output):
        return Death(rank=int(found["rank"]), how=found["how"])
    if found := _OPENMPI_STATUS.search(output):
        return Death(rank=int(found["rank"]), how=f"exit status {found['how']}")
    return None
