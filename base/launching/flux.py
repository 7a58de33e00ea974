"""flux run, which also starts ranks inside the jobs of other schedulers."""

from __future__ import annotations

import re

from dlscale.base.hostlist import compress_hostlist
from dlscale.base.launching.launcher import Launcher, Start, set_by_env


def command(start: Start) -> list[str]:
    """A job in the batch script's Flux instance: whole nodes, ended by the first failed rank."""
    options = [f"--nodes={start.num_nodes}", f"--ntasks={start.num_ranks}", "--exclusive"]
    if start.nodes:
        options.append(f"--requires=host:{compress_hostlist(start.nodes)}")
    options += ["--setopt=cpu-affinity=off", "--setopt=gpu-affinity=off", "--setopt=exit-on-error"]
    return [*set_by_env(start.variables), "flux", "run", *options, *start.launch_options, *start.program]


LAUNCHER = Launcher(
    command=command,
    per_node=lambda n: ["flux", "run", f"--nodes={n}", f"--ntasks={n}", "--exclusive"],
    ranks=("FLUX_TASK_RANK",),
    local_ranks=("FLUX_TASK_LOCAL_ID",),
    # src/shell/doom.c with exit-on-error.
    death=re.compile(
        r"task rank (?P<rank>\d+) on host \S+ failed"
        r"(?: \((?P<how>[^\n)]+(?:\([^\n)]*\))?)\))? and exit-on-error"
    ),
)
