"""All launchers, each of which is a file in `launching`. Tests pin each command line as a whole.

Every rank imports this module, so it and those files must stay light.
"""

from __future__ import annotations

from pathlib import Path

from dlscale.base.launching import aprun, flux, jsrun, pals, srun, torchrun
from dlscale.base.launching import mpiexec as by_mpiexec
from dlscale.base.launching.launcher import Launcher, Start
from dlscale.base.launching.mpiexec import Flavour, flavour_of, mpi_title

__all__ = [
    "LAUNCHERS",
    "Flavour",
    "Launcher",
    "Start",
    "command_line",
    "flavour_of",
    "mpi_title",
    "one_per_node",
]

# A process asks for the first one's variables first. torchrun runs inside all others. Slurm's come last: a job's script
# has them too, and another launcher may run inside.
LAUNCHERS = {
    "torchrun": torchrun.LAUNCHER,
    "mpiexec": by_mpiexec.LAUNCHER,
    "jsrun": jsrun.LAUNCHER,
    "flux": flux.LAUNCHER,
    "pals": pals.LAUNCHER,
    "aprun": aprun.LAUNCHER,
    "srun": srun.LAUNCHER,
}


def command_line(
    launcher: str,
    start: Start,
    *,
    mpiexec_path: Path = Path("mpiexec"),
    flavour: Flavour | None = None,
    oversubscribed: bool = False,
) -> list[str]:
    """The command line that starts a program; mpiexec also needs `flavour`."""
    if launcher != "mpiexec" or flavour is None:
        return LAUNCHERS[launcher].command(start)
    return by_mpiexec.mpiexec(flavour, mpiexec_path, start, oversubscribed=oversubscribed)


def one_per_node(
    launcher: str, num_nodes: int, *, mpi: Flavour | None = None, mpiexec: str = "mpiexec"
) -> list[str]:
    """The prefix that starts a program once on each node of a job, without MPI."""
    if launcher != "mpiexec":
        return LAUNCHERS[launcher].per_node(num_nodes)
    return by_mpiexec.per_node(mpi, mpiexec, num_nodes)
