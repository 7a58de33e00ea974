"""mpiexec of HPE's Parallel Application Launch Service (PALS), as on Aurora, Polaris and Crux.

Options are those of its own command line (Cray-HPE/craycli, cray/modules/mpiexec/cli.py) and of the centre's guides
(argonne-lcf/user-guides, docs/running-jobs/example-job-scripts.md, commit 7d04a3f9).
"""

from __future__ import annotations

import re

from dlscale.base.launching.launcher import Launcher, Start, set_by_env


def command(start: Start) -> list[str]:
    """Ranks in blocks, each on hardware threads of its own; ended by the first failed one, as PALS does unasked.

    --no-transfer: a copy of the interpreter on the nodes would not find its libraries.
    """
    options = ["-n", str(start.num_ranks), "--ppn", str(start.ranks_per_node)]
    if start.nodes:
        options += ["--hosts", ",".join(start.nodes)]
    if not start.gives("--cpu-bind"):
        options += [f"--depth={start.cpus_per_rank}", "--cpu-bind=depth"]
    options += ["--envall", "--no-transfer", *start.launch_options]
    return [*set_by_env(start.variables), "mpiexec", *options, *start.program]


def is_pals(version_text: str) -> bool:
    """Whether PALS's mpiexec printed this for --version: "mpiexec version 1.8.0 revision ..."."""
    return bool(re.match(r"mpiexec version \d", version_text))


LAUNCHER = Launcher(
    command=command,
    per_node=lambda n: ["mpiexec", "-n", str(n), "--ppn", "1", "--envall", "--no-transfer"],
    schedulers=("pbs",),
    ranks=("PALS_RANKID",),
    local_ranks=("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
    # docs/aurora/applications-and-libraries/libraries/mpi.md there. Signal 15 is what PALS ends the others with.
    death=re.compile(
        r"^\S+: rank (?P<rank>\d+) (?:died from )?(?P<how>signal (?!15\b)\d+|exited with code \d+)",
        re.MULTILINE,
    ),
)
