"""Slurm's srun."""

from __future__ import annotations

import re

from dlscale.base.hostlist import compress_hostlist
from dlscale.base.launching.launcher import Launcher, Start, set_by_env


def command(start: Start) -> list[str]:
    """A step of a Slurm job, alone on its nodes.

    No --overlap: a step waits until its predecessor has left the nodes. It has all devices that its job requested (by
    the partition's directives), and each rank takes one of them.
    """
    options = on_nodes(start, start.num_ranks, per_node=start.ranks_per_node, cpus=start.cpus_per_rank)
    return [*set_by_env(start.variables), "srun", *options, *start.launch_options, *start.program]


def on_nodes(start: Start, num_tasks: int, *, per_node: int, cpus: int) -> list[str]:
    """Options of a step of so many tasks on the nodes, each with that number of hardware threads."""
    nodes = [f"--nodelist={compress_hostlist(start.nodes)}"] if start.nodes else []
    return [
        f"--nodes={start.num_nodes}",
        f"--ntasks={num_tasks}",
        f"--ntasks-per-node={per_node}",
        f"--cpus-per-task={cpus}",
        *nodes,
        "--kill-on-bad-exit=1",
        "--export=ALL",
    ]


LAUNCHER = Launcher(
    command=command,
    per_node=lambda n: [
        *("srun", f"--nodes={n}", f"--ntasks={n}", "--ntasks-per-node=1", "--kill-on-bad-exit=1")
    ],
    schedulers=("slurm",),
    ranks=("SLURM_PROCID",),
    local_ranks=("SLURM_LOCALID",),
    sizes=("SLURM_STEP_NUM_TASKS",),  # not SLURM_NTASKS: a batch script has it too, beside any step
    # src/srun/launch.c: each death as it hears of it, the first one first. "tasks 4-7,9" ended alike and at the
    # same time: the first of them stands for all.
    death=re.compile(r"^srun: error: \S+: tasks? (?P<rank>\d+)[-,\d]*: (?P<how>[^\n]+)", re.MULTILINE),
)
