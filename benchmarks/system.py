"""A machine as its TOML file describes it, and the software environments it offers."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from dlscale.benchmarks import definition
from dlscale.benchmarks.record import Frozen
from dlscale.models.errors import UsageError

Mpi = Literal["mpich", "intelmpi", "openmpi"]


class Environment(Frozen):
    """A Python environment with its MPI. `prefix = "current"` is the one that dlscale runs in."""

    prefix: str
    mpi: Mpi | Literal["detect"] = "detect"
    mpiexec: str | None = None  # default: the one in the environment, for "current" else the one on PATH
    variables: dict[str, str] = {}  # {prefix} in a value is the environment's absolute folder
    setup: str  # the command that makes it


class System(Frozen):
    """A machine: what it has and how programs are started on it."""

    name: str
    title: str
    scheduler: Literal["none"]
    launcher: Literal["mpiexec"]
    cores_per_node: PositiveInt | Literal["detect"]
    num_nodes: PositiveInt
    environments: dict[str, Environment]

    def num_cores(self) -> int:
        """Cores of one node that a study may use: as stated, or those this process is allowed to run on."""
        if self.cores_per_node == "detect":
            return len(os.sched_getaffinity(0))
        return self.cores_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An environment found on this machine: absolute paths of its folder, its Python and its mpiexec."""

    name: str
    prefix: Path
    python: Path
    mpiexec: Path
    mpi: Mpi | Literal["detect"]
    variables: dict[str, str]


def load_system(name: str) -> System:
    """The system of that name or in that TOML file. Raises UsageError."""
    return definition.load(System, name, folder="systems")


def default_environment(system: System) -> str:
    """The environment that the running dlscale belongs to."""
    for name, environment in system.environments.items():
        if environment.prefix != "current" and Path(environment.prefix).absolute() == Path(sys.prefix):
            return name
    if "current" in system.environments:
        return "current"
    return next(iter(system.environments))


def find_installation(system: System, name: str) -> Installation:
    """Where that environment's Python and mpiexec are. Raises UsageError if it is unknown or not set up."""
    definition.one_of(f"environment on {system.name}", name, system.environments)
    environment = system.environments[name]
    current = environment.prefix == "current"
    prefix = Path(sys.prefix) if current else Path(environment.prefix).absolute()
    python = Path(sys.executable) if current else prefix / "bin" / "python"
    if not python.exists():
        raise UsageError(
            f"environment {name} of {system.name} has no Python at {environment.prefix}/bin/python; "
            f"set it up with: {environment.setup}"
        )
    wanted = environment.mpiexec or str(prefix / "bin" / "mpiexec")
    found = shutil.which(wanted) or (shutil.which("mpiexec") if current and not environment.mpiexec else None)
    if not found:
        raise UsageError(
            f"environment {name} of {system.name} has no mpiexec at {environment.mpiexec or 'bin/mpiexec'}; "
            f"set it up with: {environment.setup}"
        )
    return Installation(
        name=name,
        prefix=prefix,
        python=python,
        mpiexec=Path(found).absolute(),
        mpi=environment.mpi,
        variables={k: v.replace("{prefix}", str(prefix)) for k, v in environment.variables.items()},
    )
