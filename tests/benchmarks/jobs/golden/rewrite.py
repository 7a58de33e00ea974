"""The batch scripts and command lines of the shipped systems, as the files beside this one have them.

    python tests/benchmarks/golden/rewrite.py

writes them anew. Read the difference before you commit it: it is what centres will be given.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from dlscale.base import definitions
from dlscale.base.batch import JobRequest
from dlscale.base.launchers import LAUNCHERS, Flavour
from dlscale.benchmarks.jobs.script import batch_script
from dlscale.benchmarks.systems.start import start_on
from dlscale.benchmarks.systems.system import System, load_system

FOLDER = Path(__file__).parent
NODES = {
    "aprun": ("3829", "3830", "3831", "3832"),
    "pals": ("x3001c0s1b0n0", "x3001c0s1b1n0", "x3001c0s7b0n0", "x3001c0s7b1n0"),
    "srun": ("nid00001", "nid00002", "nid00003", "nid00004"),
}
CLUSTER_NODES = ("cc001", "cc002", "cc003", "cc004")


def batch_systems() -> list[str]:
    """The shipped systems that have a scheduler."""
    return [name for name in definitions.names("systems") if load_system(name).has_jobs]


def golden(name: str) -> str:
    """A job of four nodes for two hours in the system's default partition, and a launch on two of them."""
    system = load_system(name)
    environment = system.environments["site"]
    python = environment.python or f"{environment.prefix}/bin/python"
    request = JobRequest(
        name="weak-scaling-job-000",
        num_nodes=4,
        ranks_per_node=system.placement.ranks_per_node if system.placement else 1,
        seconds=7200,
        directives=tuple(system.partitions[str(system.partition)].directives),
        account="abc123",
        output="jobs/job-000.log",
        folder=f"/results/{name}/weak-scaling-0123456789abcdef",
    )
    command = [python, "-m", "dlscale.benchmarks.jobs.allocation", request.folder, "job-000"]
    script = batch_script(system, environment, request, command)
    return f"{script}\n# A launch on two of the nodes:\n# {shlex.join(_launch(system))}\n"


def _launch(system: System) -> list[str]:
    placement = system.placement
    nodes = NODES.get(system.launcher, CLUSTER_NODES)[:2]
    start = start_on(
        system,
        system.partitions[str(system.partition)],
        nodes=nodes,
        num_ranks=len(nodes) * (placement.ranks_per_node if placement else 1),
        variables={"MKL_NUM_THREADS": "33", "KMP_AFFINITY": "granularity=fine,compact,1,0"},
        program=["python", "-m", "dlscale.benchmarks.rank.worker", "spool/x"],
    )
    stated = system.environments["site"].mpi
    flavour: Flavour = "mpich" if stated == "detect" else stated
    with patch.object(os, "geteuid", return_value=1000):  # Open MPI wants to hear it from root
        return LAUNCHERS[system.launcher].command(replace(start, flavour=flavour))


def main() -> None:
    """Write all of them."""
    for name in batch_systems():
        (FOLDER / f"{name}.sh").write_text(golden(name), encoding="utf-8")
        sys.stdout.write(f"{name}.sh\n")


if __name__ == "__main__":
    main()
