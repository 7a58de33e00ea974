"""Slurm: sbatch, squeue, scancel (the man pages of 22.05 and later)."""

from __future__ import annotations

from dlscale.base.batch.scheduler import JobRequest, JobVariables, Scheduler


def _options(request: JobRequest) -> list[str]:
    """Only the batch shell gets the signal before the end; by then the program has replaced it (`jobs/script.py`).

    A job that lost a node or was preempted is queued again under its number, and appends to its log. Slurm replaces %j
    and others in file names.
    """
    return [
        f"--nodes={request.num_nodes}",
        f"--ntasks-per-node={request.ranks_per_node}",
        *([f"--cpus-per-task={request.cpus_per_rank}"] if request.cpus_per_rank else []),
        "--exclusive",
        f"--time={request.clock}",
        f"--chdir={request.quoted_folder}",
        f"--output={request.quoted_output.replace('%', '%%')}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:TERM@{request.warn_seconds}",
    ]


SCHEDULER = Scheduler(
    name="slurm",
    variables=JobVariables(
        job_id="SLURM_JOB_ID",
        partition="SLURM_JOB_PARTITION",
        listed="SLURM_JOB_NODELIST",
        end_time="SLURM_JOB_END_TIME",  # in versions after 22.05 only
        restarts="SLURM_RESTART_COUNT",
    ),
    marker="#SBATCH",
    job_name="--job-name=",
    options=_options,
    account="--account=",
    after="--dependency=afterany:",
    submit=("sbatch", "--parsable"),
    accepted=r"^(\d+)(?:;\S+)?\s*$",  # after a semicolon the cluster's name, where there are several
    query=lambda ids: [
        *("squeue", "--noheader", "--states=all", "--format=%i %T", f"--jobs={','.join(ids)}")
    ],
    # A job whose nodes boot (CONFIGURING) or are cleaned up (COMPLETING) has them: it runs.
    pending="PENDING|REQUEUED|REQUEUE_FED|REQUEUE_HOLD|RESV_DEL_HOLD|SPECIAL_EXIT",
    ended="BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|REVOKED|TIMEOUT",
    forgotten="Invalid job id",
    cancel=("scancel",),
)
