"""mpiexec of MPICH, Intel MPI and Open MPI, whose options differ."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from dlscale.base.launching.launcher import Launcher, Start

Flavour = Literal["mpich", "intelmpi", "openmpi"]  # of mpiexec
_MPI_NAMES: dict[Flavour, str] = {"intelmpi": "Intel MPI", "mpich": "MPICH", "openmpi": "Open MPI"}


def flavour_of(version_text: str) -> Flavour | None:
    """The MPI whose launcher printed this for --version; None if unknown."""
    if "Intel(R) MPI" in version_text:
        return "intelmpi"
    if "HYDRA" in version_text or "MPICH" in version_text:
        return "mpich"
    if "Open MPI" in version_text or "OpenRTE" in version_text or "PRRTE" in version_text:
        return "openmpi"
    return None


def mpi_title(version_text: str) -> str | None:
    """Name and version of that MPI, as in "MPICH 5.0.2"; None if it is none that dlscale knows."""
    flavour = flavour_of(version_text)
    version = re.search(r"\d+\.\d+(\.\d+)*\S*", version_text)
    return f"{_MPI_NAMES[flavour]} {version[0] if version else ''}".strip() if flavour else None


def mpiexec(flavour: Flavour, path: Path, start: Start, *, oversubscribed: bool) -> list[str]:
    """The command line that starts a program on the nodes of an allocation, or on this machine.

    Launchers do not bind: each rank binds itself to its cores, the same way under every launcher.
    """
    line, where = [str(path)], []
    if flavour == "openmpi":
        over = ":OVERSUBSCRIBE" if oversubscribed else ""
        where = ["--map-by", "slot:OVERSUBSCRIBE"] if oversubscribed else []
        if start.nodes:
            hosts = ",".join(f"{node}:{start.ranks_per_node}" for node in start.nodes)
            where = ["--host", hosts, "--map-by", f"ppr:{start.ranks_per_node}:node{over}"]
        bind = ["--bind-to", "none"]
        sets = [word for name, value in start.variables.items() for word in ("-x", f"{name}={value}")]
        sets += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    else:
        if start.nodes:
            where = ["-hosts", ",".join(start.nodes), "-ppn", str(start.ranks_per_node)]
        elif flavour == "mpich":
            # What its own configuration may say of schedulers and other hosts means nothing here.
            line += ["-launcher", "fork", "-rmk", "user"]
        # Intel's launcher binds by default; 2021.14 has no option against it.
        bind = ["-bind-to", "none"] if flavour == "mpich" else ["-genv", "I_MPI_PIN", "0"]
        sets = [word for name, value in start.variables.items() for word in ("-genv", name, value)]
    line += ["-n", str(start.num_ranks), *where, *bind, *sets, *start.launch_options, *start.program]
    return [*_RESPECT, *line] if flavour == "intelmpi" and start.nodes else line


# Inside a batch job Intel's launcher would follow the scheduler's placement and ignore -ppn.
_RESPECT = ("env", "I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0")


def per_node(flavour: Flavour | None, path: str, num_nodes: int) -> list[str]:
    """The prefix that starts a program once on each node of a job, without MPI."""
    if flavour == "openmpi":
        return [path, "-n", str(num_nodes), "--map-by", "ppr:1:node"]
    respect = _RESPECT if flavour == "intelmpi" else ()
    return [*respect, path, "-n", str(num_nodes), "-ppn", "1"]


def _only_with_flavour(_: object) -> list[str]:
    raise ValueError("mpiexec without the flavour of its MPI")


LAUNCHER = Launcher(
    command=_only_with_flavour,
    per_node=_only_with_flavour,
    needs_job=False,
    ranks=("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"),
    local_ranks=("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK"),
    sizes=("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"),
    death=re.compile(
        r"process rank (?P<rank>\d+) with PID \d+.*?exited\s+on\s+(?P<how>signal \d+)", re.DOTALL
    ),
)
