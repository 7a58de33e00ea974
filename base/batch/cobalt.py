"""Cobalt, as it ran Argonne's Theta and Cooley (its man pages and source, repository ido/cobalt)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dlscale.base.batch.scheduler import JobRequest, JobVariables, Scheduler, hosts_in, needed
from dlscale.base.hostlist import expand_hostlist


def _options(request: JobRequest) -> list[str]:
    """Both streams go to one file, which Cobalt appends to. The job before must end with status 0: it has no afterany.

    Cobalt reads directives from the script's second line on, up to the first line that is not one.
    """
    return [
        f"-n {request.num_nodes}",
        f"-t {request.minutes}",
        f"--cwd {request.quoted_folder}",
        f"-o {request.quoted_output}",
        f"-e {request.quoted_output}",
    ]


def _nodes(variables: Mapping[str, str]) -> list[str]:
    """Cooley has a node file, Theta the numbers of the nodes in COBALT_PARTNAME: 3829-3832,3840."""
    if Path(variables.get("COBALT_NODEFILE", "")).is_file():
        return hosts_in(variables, "COBALT_NODEFILE")
    return expand_hostlist(f"[{needed(variables, 'COBALT_PARTNAME')}]")


SCHEDULER = Scheduler(
    name="cobalt",
    variables=JobVariables(job_id="COBALT_JOBID", listed="COBALT_PARTNAME", end_time="COBALT_ENDTIME"),
    marker="#COBALT",
    job_name="--jobname ",
    options=_options,
    account="-A ",
    after="--dependencies ",
    submit=("qsub", "--mode", "script"),
    accepted=r"^(\d+)\s*$",
    query=lambda ids: ["qstat", "--header", "JobID:State", *ids],  # ended jobs are not in it
    pending="queued|hold|.*_hold",
    ended="done|dep_fail",  # dep_fail: the job before failed, so this one never starts
    forgotten=r"\A\s*\Z",
    cancel=("qdel",),
    own_nodes=_nodes,
    command="qstat",
)
