"""aprun of Cray's ALPS."""

from __future__ import annotations

import re

from dlscale.base.launching.launcher import Launcher, Start


def command(start: Start) -> list[str]:
    """ALPS: nodes are numbers (nid00012 is 12); -j, threads used per core, is an option of the placement."""
    options = ["-n", str(start.num_ranks), "-N", str(start.ranks_per_node), "-d", str(start.cpus_per_rank)]
    if not start.gives("-cc"):
        options += ["-cc", "depth"]
    if start.nodes:
        options += ["-L", ",".join(re.sub(r"^nid0*(?=\d)", "", node) for node in start.nodes)]
    sets = [word for name, value in start.variables.items() for word in ("-e", f"{name}={value}")]
    return ["aprun", *options, *sets, *start.launch_options, *start.program]


LAUNCHER = Launcher(
    command=command,
    per_node=lambda n: ["aprun", "-b", "-n", str(n), "-N", "1"],  # -b: the program is on the nodes
    schedulers=("cobalt", "pbs", "torque", "slurm"),
    ranks=("ALPS_APP_PE",),
    # As published logs of Cray XC have it.
    death=re.compile(
        r"^_pmiu_daemon\(SIGCHLD\): .*?PE RANK (?P<rank>\d+) (?P<how>exit [^\n]+)", re.MULTILINE | re.DOTALL
    ),
)
