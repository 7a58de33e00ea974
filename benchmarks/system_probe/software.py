"""The MPI that a job would start with, and environment modules."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from dlscale.benchmarks.environment import redact
from dlscale.benchmarks.launchers import Flavour, flavour_of
from dlscale.benchmarks.system_probe.host import Host

_VERSIONS = {
    "intelmpi": r"Version (\S+)",
    "mpich": r"Version:\s+(\S+)",
    "openmpi": r"Open MPI\)?,? v?(\d\S*)",
}
_NAMES = {"intelmpi": "Intel MPI", "mpich": "MPICH", "openmpi": "Open MPI"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpi:
    """An mpiexec: whose it is, and what it calls itself."""

    flavour: Flavour
    title: str  # MPICH 5.0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Modules:
    """A module command and what is loaded by it; names that are paths or name a user are not told."""

    title: str  # Lmod 8.7.32
    loaded: tuple[str, ...]


def read_mpi(host: Host, prefix: Path = Path(sys.prefix)) -> Mpi | None:
    """The MPI of environment `current`: the mpiexec in this Python's folder, or the one on PATH."""
    own = str(prefix / "bin" / "mpiexec")
    said = host.run(own if host.find(own) else "mpiexec", "--version")
    return parse_mpi(said or "")


def parse_mpi(version_text: str) -> Mpi | None:
    """Whose mpiexec printed this for --version; None if it is none that dlscale knows."""
    flavour = flavour_of(version_text)
    if not flavour:
        return None
    version = re.search(_VERSIONS[flavour], version_text)
    return Mpi(flavour=flavour, title=f"{_NAMES[flavour]} {version[1] if version else ''}".strip())


def read_modules(host: Host) -> Modules | None:
    """The module command of this shell; None if there is none."""
    lmod, environment_modules = host.variables.get("LMOD_VERSION"), host.variables.get("MODULESHOME")
    if not (lmod or environment_modules):
        return None
    names = host.variables.get("LOADEDMODULES", "").split(":")
    told = [name for name in names if name and not name.startswith(("/", "~")) and redact(name) == name]
    return Modules(title=f"Lmod {lmod}" if lmod else "Environment Modules", loaded=tuple(told))
