"""LSF with whole nodes (-nnodes), as on machines with jsrun (OLCF's guide to Summit; IBM's manual of bsub)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from dlscale.base.batch.scheduler import JobRequest, JobVariables, Scheduler, hosts_in


def _options(request: JobRequest) -> list[str]:
    """-o appends. The warning before the end (-wa, -wt) is counted in whole minutes."""
    return [
        f"-nnodes {request.num_nodes}",
        f"-W {request.minutes // 60}:{request.minutes % 60:02d}",
        f"-cwd {request.quoted_folder}",
        f"-o {request.quoted_output}",
        "-r",
        f"-wa TERM -wt {math.ceil(request.warn_seconds / 60)}",
    ]


def _nodes(variables: Mapping[str, str]) -> list[str]:
    """The host file begins with the launch node, where the script runs and jsrun starts nothing."""
    names = hosts_in(variables, "LSB_DJOB_HOSTFILE")
    return [name for name in names if not re.match(r"(batch|login)\d*(\.|$)", name)] or names


SCHEDULER = Scheduler(
    name="lsf",
    # Its lists of hosts are left out of records, as they may include the node of the batch script.
    variables=JobVariables(job_id="LSB_JOBID", partition="LSB_QUEUE", restarts="LSB_RESTART"),
    marker="#BSUB",
    job_name="-J ",
    options=_options,
    account="-P ",
    after="-w ",
    after_value="ended({})",
    replaced="%",
    # Directives are read only from what bsub gets on its stdin, unless a site has configured it otherwise.
    submit=("sh", "-c", 'exec bsub < "$0"'),
    accepted=r"Job <(\d+)> is submitted",
    query=lambda ids: ["bjobs", "-noheader", "-o", "jobid stat", *ids],
    pending="PEND|PSUSP|WAIT",
    ended="DONE|EXIT",
    forgotten="is not found",
    cancel=("bkill",),
    own_nodes=_nodes,
    command="bsub",
)
