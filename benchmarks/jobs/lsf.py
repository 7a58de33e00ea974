"""LSF with whole nodes (-nnodes), as on machines with jsrun (OLCF's guide to Summit; IBM's manual of bsub)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.benchmarks.jobs.scheduler import (
    JobRequest,
    Scheduler,
    State,
    directive_lines,
    job_name,
    lines_of,
    quoted,
    script_end_time,
    table_states,
    unique,
)

_PENDING = {"PEND", "PSUSP", "WAIT"}
_ENDED = {"DONE", "EXIT"}


def directives(request: JobRequest) -> list[str]:
    """-o appends. The warning before the end (-wa, -wt) is counted in whole minutes."""
    path = request.output_path
    if "%" in path:
        raise UsageError(
            f"the output of the job, {path}, has a %, which LSF replaces; take another folder for results"
        )
    options = [
        f"-J {job_name(request.name)}",
        f"-nnodes {request.num_nodes}",
        f"-W {request.minutes // 60}:{request.minutes % 60:02d}",
        f"-cwd {quoted(request.folder, 'the folder of the job')}",
        f"-o {quoted(path, 'the output of the job')}",
        "-r",
        f"-wa TERM -wt {math.ceil(request.warn_seconds / 60)}",
    ]
    if request.account:
        options.append(f"-P {quoted(request.account, 'the account')}")
    if request.after:
        options.append("-w " + quoted(f"ended({request.after})", "the job before"))
    return directive_lines("#BSUB", request, options)


def _submit(script: Path) -> list[str]:
    """Directives are read only from what bsub gets on its stdin, unless a site has configured it otherwise."""
    return ["sh", "-c", 'exec bsub < "$0"', str(script)]


def _job_id(text: str) -> str:
    match = re.search(r"Job <(\d+)> is submitted", text)
    if not match:
        raise ValueError(f"bsub printed no job id: {text!r}")
    return match[1]


def _query(ids: Sequence[str]) -> list[str]:
    return ["bjobs", "-noheader", "-o", "jobid stat", *ids]


def _states(text: str, ids: Sequence[str]) -> dict[str, State]:
    return table_states(text, ids, _state)


def _state(name: str) -> State:
    if name in _PENDING:
        return "pending"
    return "ended" if name in _ENDED else "running"


def _forgot(errors: str) -> bool:
    return "is not found" in errors


def _cancel(job: str) -> list[str]:
    return ["bkill", job]


def _nodes(variables: Mapping[str, str]) -> list[str]:
    """The host file begins with the launch node, where the script runs and jsrun starts nothing."""
    names = unique(lines_of(variables, "LSB_DJOB_HOSTFILE"))
    return [name for name in names if not re.match(r"(batch|login)\d*(\.|$)", name)] or names


def _requeues(variables: Mapping[str, str]) -> int:
    """1 after any number of starts: LSF does not count them."""
    return int(variables.get("LSB_RESTART") == "Y")


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
)
