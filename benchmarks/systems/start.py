"""Starting a program on a system: the environment that has it, the launcher, and what each rank gets of a node."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS, Flavour, Start
from dlscale.benchmarks.systems.system import Partition, System


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An environment on this machine: the paths of its folder, Python, and mpiexec or other launcher.

    Where nothing says that there must be an mpiexec, there may be none at that path.
    """

    name: str
    prefix: Path
    python: Path
    mpiexec: Path
    mpi: Flavour | Literal["detect"]
    variables: dict[str, str]


def find_installation(system: System, name: str | None = None) -> Installation:
    """The paths of an environment. Raises UsageError if it is unknown or not set up.

    Without a name it is the one that dlscale runs in, if the system lists it, else the first. Its folder beside
    dlscale's code is the same, whatever the working folder is. Python is the one that the file names, if this node has
    it, else the one in the folder.
    """
    own, here = Path(__file__).resolve().parents[2], Path(sys.prefix)
    folders: dict[str, Path] = {}
    for each, environment in system.environments.items():
        path = Path(os.path.expandvars(environment.prefix))
        is_here = environment.prefix == "current" or own / path == here
        folders[each] = here if is_here else path.absolute()
    if not name:
        running = [each for each, folder in folders.items() if folder == here and each != "current"]
        current_one = ["current"] if "current" in folders and not system.has_jobs else []
        name = [*running, *current_one, *folders][0]
    definitions.one_of(f"environment on {system.name}", name, system.environments)
    environment, prefix = system.environments[name], folders[name]
    current = environment.prefix == "current"
    named = shutil.which(os.path.expandvars(environment.python)) if environment.python else None
    python = Path(sys.executable) if current else Path(named or prefix / "bin" / "python").absolute()
    if not python.exists():
        unset = re.findall(r"\$\{?(\w+)", os.path.expandvars(environment.prefix))
        raise UsageError(
            f"environment {name} of {system.name} has no Python at {environment.prefix}/bin/python"
            f"{f' (${unset[0]} is not set)' if unset else ''}; set it up with: {environment.setup}"
        )
    wanted = environment.mpiexec or str(prefix / "bin" / "mpiexec")
    if system.has_jobs and system.launcher != "mpiexec":
        wanted = LAUNCHERS[system.launcher].program
        launcher: str | None = shutil.which(wanted) or wanted
    else:
        on_path = system.has_jobs or (current and not environment.mpiexec)  # that of modules, or of the user
        launcher = shutil.which(wanted) or (shutil.which("mpiexec") if on_path else None)
        launcher = launcher or (wanted if system.launcher != "mpiexec" else None)
    if not launcher:
        raise UsageError(
            f"environment {name} of {system.name} has no {wanted}; set it up with: {environment.setup}"
        )
    return Installation(
        name=name,
        prefix=prefix,
        python=python,
        mpiexec=Path(launcher).absolute(),
        mpi=environment.mpi,
        variables={k: v.replace("{prefix}", str(prefix)) for k, v in environment.variables.items()},
    )


def with_launcher(system: System, name: str) -> System:
    """The system with that launcher in place of its file's. Raises UsageError where it starts nothing."""
    try:
        return System.model_validate(system.model_dump() | {"launcher": name})
    except ValidationError as error:
        problem = definitions.problems(error)[0].removeprefix("launcher: ")
        raise UsageError(f"launcher={name} on {system.name}: {problem}") from None


def cpus_per_rank(system: System, ranks_per_node: int) -> int:
    """A rank's share of a node's hardware threads: whole cores, rounded down, times threads per core.

    aprun's option -j says how many threads of each core are used, if not all.
    """
    cores = max(1, system.num_cores() // ranks_per_node)
    options = list(system.placement.launch_options) if system.placement else []
    if system.launcher == "aprun" and "-j" in options:
        return cores * int(options[options.index("-j") + 1])
    threads = system.node.threads_per_core
    return cores * (threads.value if threads else 1)


def start_on(
    system: System,
    partition: Partition | None,  # None: this machine
    *,
    nodes: tuple[str, ...],
    num_ranks: int,
    variables: Mapping[str, str],
    program: Sequence[str],
    ranks_per_node: int | None = None,  # None: the system's placement
) -> Start:
    """A start with the threads, devices and options of the system's partition and placement."""
    placement = system.placement
    share = ranks_per_node or (placement.ranks_per_node if placement else num_ranks)
    devices = system.devices.per_node.value // share if system.devices else 0
    return Start(
        nodes=nodes,
        num_ranks=num_ranks,
        ranks_per_node=min(share, num_ranks),
        cpus_per_rank=cpus_per_rank(system, share),
        devices_per_rank=devices,
        launch_options=(
            *(partition.launch_options if partition else ()),
            *(placement.launch_options if placement else ()),
        ),
        variables=variables,
        program=program,
    )
