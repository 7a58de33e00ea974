"""Slurm: sbatch, squeue, scancel (the man pages of 22.05 and later)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlscale.benchmarks.jobs.scheduler import (
    JobRequest,
    Scheduler,
    State,
    clock,
    directive_lines,
    job_name,
    number,
    quoted,
    script_end_time,
    table_states,
)
from dlscale.benchmarks.launch.hostlist import expand_hostlist

_PENDING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REVOKED", "TIMEOUT",
}  # fmt: skip


def directives(request: JobRequest) -> list[str]:
    """Only the batch shell gets the signal before the end; by then the program has replaced it (`script.py`).

    A job that lost a node or was preempted is queued again under its number, and appends to its log.
    """
    options = [
        f"--job-name={job_name(request.name)}",
        f"--nodes={request.num_nodes}",
        f"--ntasks-per-node={request.ranks_per_node}",
        *([f"--cpus-per-task={request.cpus_per_rank}"] if request.cpus_per_rank else []),
        "--exclusive",
        f"--time={clock(request.minutes)}",
        f"--chdir={quoted(request.folder, 'the folder of the job')}",
        f"--output={quoted(_literal(request.output_path), 'the output of the job')}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:TERM@{request.warn_seconds}",
    ]
    lines = directive_lines("#SBATCH", request, options, account="--account=", after="--dependency=afterany:")
    return list(dict.fromkeys(lines))


def _literal(path: str) -> str:
    """Slurm replaces %j and others in file names."""
    return path.replace("%", "%%")


def _submit(script: Path) -> list[str]:
    return ["sbatch", "--parsable", str(script)]


def _job_id(text: str) -> str:
    """`--parsable` prints the number, and the cluster's name after a semicolon where there are several."""
    match = re.search(r"^(\d+)(?:;\S+)?\s*$", text, re.MULTILINE)
    if not match:
        raise ValueError(f"sbatch printed no job id: {text!r}")
    return match[1]


def _query(ids: Sequence[str]) -> list[str]:
    return ["squeue", "--noheader", "--states=all", "--format=%i %T", f"--jobs={','.join(ids)}"]


def _states(text: str, ids: Sequence[str]) -> dict[str, State]:
    return table_states(text, ids, _state)


def _state(name: str) -> State:
    """A job whose nodes boot (CONFIGURING) or are cleaned up (COMPLETING) has them: it runs."""
    if name in _PENDING:
        return "pending"
    return "ended" if name in _ENDED else "running"


def _forgot(errors: str) -> bool:
    return "Invalid job id" in errors


def _cancel(job: str) -> list[str]:
    return ["scancel", job]


def _nodes(variables: Mapping[str, str]) -> list[str]:
    if "SLURM_JOB_NODELIST" not in variables:
        raise ValueError("SLURM_JOB_NODELIST is not set: this is not inside a job")
    return expand_hostlist(variables["SLURM_JOB_NODELIST"])


def _end_time(variables: Mapping[str, str]) -> float | None:
    """Slurm sets the variable in versions after 22.05 only."""
    seconds = number(variables, "SLURM_JOB_END_TIME")
    return seconds if seconds is not None else script_end_time(variables)


def _requeues(variables: Mapping[str, str]) -> int:
    return int(number(variables, "SLURM_RESTART_COUNT") or 0)


SCHEDULER = Scheduler(
    directives=directives,
    submit=_submit,
    job_id=_job_id,
    query=_query,
    states=_states,
    forgot=_forgot,
    cancel=_cancel,
    nodes=_nodes,
    end_time=_end_time,
    requeues=_requeues,
)
