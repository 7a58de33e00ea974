"""PBS Pro and OpenPBS, and what Torque, of the same descent, shares with them (the man pages of OpenPBS)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dlscale.base.batch.scheduler import JobRequest, JobVariables, Scheduler


def _options(request: JobRequest) -> list[str]:
    """Whole nodes by their cores. PBS sends no signal before the wall time ends: then SIGTERM and SIGKILL."""
    cores = request.cores_per_node or request.ranks_per_node
    chunk = f"select={request.num_nodes}:ncpus={cores}:mpiprocs={request.ranks_per_node}"
    return [f"-l {chunk}", "-l place=scatter:excl", *shared_options(request)]


def shared_options(request: JobRequest) -> list[str]:
    """Those that PBS and Torque share."""
    return [f"-l walltime={request.clock}", "-j oe", f"-o {request.quoted_output}", "-r y"]


def _rows(text: str) -> Iterator[tuple[str, str]]:
    """Id and state of each block of the long format; tables would cut the ids."""
    for block in re.split(r"^Job Id:\s*", text, flags=re.MULTILINE)[1:]:
        if state := re.search(r"^\s*job_state = (\w)", block, re.MULTILINE):
            yield block.split()[0], state[1]


SCHEDULER = Scheduler(
    name="pbs",
    variables=JobVariables(job_id="PBS_JOBID", partition="PBS_QUEUE", hosts="PBS_NODEFILE"),
    marker="#PBS",
    job_name="-N ",
    longest_name=15,
    options=_options,
    account="-A ",
    after="-W depend=afterany:",
    replaced=":",  # the end of a host's name
    submit=("qsub",),
    accepted=r"^(\d+(?:\[\])?(?:\.\S+)?)\s*$",  # 12345.server
    query=lambda ids: ["qstat", "-x", "-f", *ids],  # -x: with ended jobs
    rows=_rows,
    pending="[QHWTM]",
    ended="[FXC]",
    # Ended jobs are forgotten after a while, or at once where there is no history.
    forgotten="Unknown Job Id|Job has finished",
    cancel=("qdel",),
    command="qstat",
)
