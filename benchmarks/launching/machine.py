"""mpiexec on one machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlscale.benchmarks.launching.start import Flavour


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
    mapping = ["--map-by", "slot:OVERSUBSCRIBE"] if oversubscribed else []
    return [
        str(mpiexec),
        "-n",
        str(num_ranks),
        *unbound(flavour),
        *(mapping if flavour == "openmpi" else []),
        *settings(flavour, variables),
        *program,
    ]


def unbound(flavour: Flavour) -> list[str]:
    """Options that keep a launcher from binding ranks."""
    if flavour == "openmpi":
        return ["--bind-to", "none"]
    # Intel's launcher binds by itself; 2021.14 knows no option against it.
    return ["-bind-to", "none"] if flavour == "mpich" else ["-genv", "I_MPI_PIN", "0"]


def settings(flavour: Flavour, variables: Mapping[str, str]) -> list[str]:
    """Options that set variables in all ranks."""
    if flavour in ("mpich", "intelmpi"):
        return [word for name, value in variables.items() for word in ("-genv", name, value)]
    sets = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
    return [*sets, "--allow-run-as-root"] if os.geteuid() == 0 else sets
