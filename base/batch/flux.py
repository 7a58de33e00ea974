"""Flux: flux batch, flux jobs, flux cancel (flux-core's man pages)."""

from __future__ import annotations

from dlscale.base.batch.scheduler import (
    END_TIME_VARIABLE,
    NODES_VARIABLE,
    JobRequest,
    JobVariables,
    Scheduler,
    needed,
)
from dlscale.base.hostlist import expand_hostlist


def _options(request: JobRequest) -> list[str]:
    """Whole nodes. No signal before the end: Flux would send it to the ranks of the running launch, too."""
    return [
        f"--nodes={request.num_nodes}",
        "--exclusive",
        f"--time-limit={request.minutes}m",
        f"--cwd={request.quoted_folder}",
        f"--output={request.quoted_output}",
        "--setopt=output.mode=append",
    ]


SCHEDULER = Scheduler(
    name="flux",
    variables=JobVariables(job_id="FLUX_JOB_ID"),
    marker="# flux:",
    job_name="--job-name=",
    options=_options,
    account="--bank=",
    after="--dependency=afterany:",
    replaced="{{",
    submit=("flux", "batch"),
    accepted=r"^(f[1-9A-HJ-NP-Za-km-z]+)\s*$",
    query=lambda ids: ["flux", "jobs", "--no-header", "--format={id} {state}", *ids],
    pending="DEPEND|PRIORITY|SCHED",
    ended="INACTIVE",
    forgotten=r"JobID \S+ unknown",
    cancel=("flux", "cancel"),
    own_nodes=lambda variables: expand_hostlist(needed(variables, NODES_VARIABLE)),
    # A batch job is an instance of Flux, which answers these queries; there are no variables for them.
    facts={
        NODES_VARIABLE: "$(flux getattr hostlist)",
        END_TIME_VARIABLE: "$(($(date +%s) + $(flux job timeleft)))",
    },
    command="flux",
    queue_option="--queue",
)
