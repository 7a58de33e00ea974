"""Flux: flux batch, flux jobs, flux cancel (flux-core's man pages)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.benchmarks.jobs.scheduler import (
    END_TIME_VARIABLE,
    NODES_VARIABLE,
    JobRequest,
    Scheduler,
    State,
    directive_lines,
    job_name,
    quoted,
    script_end_time,
    table_states,
)
from dlscale.benchmarks.launch.hostlist import expand_hostlist

# A batch job is an instance of Flux, which answers these queries; there are no variables for them.
FACTS = {
    NODES_VARIABLE: "$(flux getattr hostlist)",
    END_TIME_VARIABLE: "$(($(date +%s) + $(flux job timeleft)))",
}

_STATES: dict[str, State] = {
    "DEPEND": "pending",
    "PRIORITY": "pending",
    "SCHED": "pending",
    "INACTIVE": "ended",
}


def directives(request: JobRequest) -> list[str]:
    """Whole nodes. No signal before the end: Flux would send it to the ranks of the running launch, too."""
    path = request.output_path
    if "{{" in path:
        raise UsageError(
            f"the output of the job, {path}, has {{{{, which Flux replaces; take another folder for results"
        )
    options = [
        f"--job-name={job_name(request.name)}",
        f"--nodes={request.num_nodes}",
        "--exclusive",
        f"--time-limit={request.minutes}m",
        f"--cwd={quoted(request.folder, 'the folder of the job')}",
        f"--output={quoted(path, 'the output of the job')}",
        "--setopt=output.mode=append",
    ]
    return directive_lines("# flux:", request, options, account="--bank=", after="--dependency=afterany:")


def _submit(script: Path) -> list[str]:
    return ["flux", "batch", str(script)]


def _job_id(text: str) -> str:
    """ƒM7Zq9AKHno, with an f where the terminal has no ƒ. Kept with the f, which Flux takes everywhere."""
    match = re.search(r"^[ƒf]([1-9A-HJ-NP-Za-km-z]+)\s*$", text, re.MULTILINE)
    if not match:
        raise ValueError(f"flux batch printed no job id: {text!r}")
    return "f" + match[1]


def _query(ids: Sequence[str]) -> list[str]:
    return ["flux", "jobs", "--no-header", "--format={id} {state}", *ids]


def _states(text: str, ids: Sequence[str]) -> dict[str, State]:
    return table_states(text.replace("ƒ", "f"), ids, lambda name: _STATES.get(name, "running"))


def _forgot(errors: str) -> bool:
    return bool(re.search(r"JobID \S+ unknown", errors))


def _cancel(job: str) -> list[str]:
    return ["flux", "cancel", job]


def _nodes(variables: Mapping[str, str]) -> list[str]:
    """The nodes in the variable that the script sets from Flux's own attribute."""
    if NODES_VARIABLE not in variables:
        raise ValueError(f"{NODES_VARIABLE} is not set: this is not inside a job's script")
    return expand_hostlist(variables[NODES_VARIABLE])


def _requeues(variables: Mapping[str, str]) -> int:  # noqa: ARG001 - Flux queues no job again
    return 0


SCHEDULER = Scheduler(
    directives=directives,
    submit=_submit,
    job_id=_job_id,
    query=_query,
    states=_states,
    forgot=_forgot,
    cancel=_cancel,
    nodes=_nodes,
    end_time=script_end_time,
    requeues=_requeues,
    facts=FACTS,
)
