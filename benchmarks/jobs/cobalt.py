"""Cobalt, as it ran Argonne's Theta and Cooley (its man pages and source, repository ido/cobalt)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlscale.benchmarks.jobs.scheduler import (
    JobRequest,
    Scheduler,
    State,
    directive_lines,
    job_name,
    lines_of,
    number,
    quoted,
    script_end_time,
    table_states,
    unique,
)
from dlscale.benchmarks.launch.hostlist import expand_hostlist

_ENDED = {"done", "dep_fail"}  # dep_fail: the job before failed, so this one never starts
_PENDING = {"queued", "hold"}


def directives(request: JobRequest) -> list[str]:
    """Both streams go to one file, which Cobalt appends to. The job before must end with status 0: it has no afterany.

    Cobalt reads directives from the script's second line on, up to the first line that is not one.
    """
    output = quoted(request.output_path, "the output of the job")
    options = [
        f"--jobname {job_name(request.name)}",
        f"-n {request.num_nodes}",
        f"-t {request.minutes}",
        f"--cwd {quoted(request.folder, 'the folder of the job')}",
        f"-o {output}",
        f"-e {output}",
    ]
    return directive_lines("#COBALT", request, options, account="-A ", after="--dependencies ")


def _submit(script: Path) -> list[str]:
    return ["qsub", "--mode", "script", str(script)]


def _job_id(text: str) -> str:
    numbers = re.findall(r"^(\d+)\s*$", text, re.MULTILINE)
    if not numbers:
        raise ValueError(f"qsub printed no job id: {text!r}")
    return str(numbers[-1])


def _query(ids: Sequence[str]) -> list[str]:
    return ["qstat", "--header", "JobID:State", *ids]


def _states(text: str, ids: Sequence[str]) -> dict[str, State]:
    """A table: ended jobs are not in it."""
    return table_states(text, ids, _state)


def _state(name: str) -> State:
    if name in _ENDED:
        return "ended"
    return "pending" if name in _PENDING or name.endswith("_hold") else "running"


def _forgot(errors: str) -> bool:
    return not errors.strip()


def _cancel(job: str) -> list[str]:
    return ["qdel", job]


def _nodes(variables: Mapping[str, str]) -> list[str]:
    """Cooley has a node file, Theta the numbers of the nodes in COBALT_PARTNAME: 3829-3832,3840."""
    if "COBALT_NODEFILE" in variables and Path(variables["COBALT_NODEFILE"]).exists():
        return unique(lines_of(variables, "COBALT_NODEFILE"))
    if "COBALT_PARTNAME" not in variables:
        raise ValueError("neither COBALT_NODEFILE nor COBALT_PARTNAME is set: this is not inside a job")
    return expand_hostlist(f"[{variables['COBALT_PARTNAME']}]")


def _end_time(variables: Mapping[str, str]) -> float | None:
    seconds = number(variables, "COBALT_ENDTIME")
    return seconds if seconds is not None else script_end_time(variables)


def _requeues(variables: Mapping[str, str]) -> int:  # noqa: ARG001 - Cobalt queues nothing again by itself
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
    end_time=_end_time,
    requeues=_requeues,
)
