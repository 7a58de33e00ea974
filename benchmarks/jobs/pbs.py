"""PBS Pro and OpenPBS, and what Torque, of the same descent, shares with them (the man pages of OpenPBS)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.benchmarks.jobs.scheduler import (
    JobRequest,
    Scheduler,
    State,
    clock,
    directive_lines,
    job_name,
    lines_of,
    quoted,
    script_end_time,
    states_of,
    unique,
)

_LONGEST_NAME = 15
_STATES: dict[str, State] = {
    "Q": "pending", "H": "pending", "W": "pending", "T": "pending", "M": "pending",
    "F": "ended", "X": "ended", "C": "ended",
}  # fmt: skip


def directives(request: JobRequest) -> list[str]:
    """Whole nodes by their cores. PBS sends no signal before the wall time ends: then SIGTERM and SIGKILL."""
    cores = request.cores_per_node or request.ranks_per_node
    chunk = f"select={request.num_nodes}:ncpus={cores}:mpiprocs={request.ranks_per_node}"
    resources = [f"-l {chunk}", "-l place=scatter:excl", f"-l walltime={clock(request.minutes)}"]
    return marked(request, resources)


def marked(request: JobRequest, resources: Sequence[str]) -> list[str]:
    """The lines that PBS and Torque share, with those of the resources between them."""
    path = request.output_path
    if ":" in path:
        raise UsageError(
            f"the output of the job, {path}, has a colon, which PBS reads as the end of a host name; "
            "take another folder for results"
        )
    options = [f"-N {job_name(request.name, longest=_LONGEST_NAME)}", *resources]
    options += ["-j oe", f"-o {quoted(path, 'the output of the job')}", "-r y"]
    return directive_lines("#PBS", request, options, account="-A ", after="-W depend=afterany:")


def submit(script: Path) -> list[str]:
    """The command that hands over a script."""
    return ["qsub", str(script)]


def job_id(text: str) -> str:
    """12345.server, the last word that qsub prints; a site's filter may print more before it."""
    ids = re.findall(r"^(\d+(?:\[\])?(?:\.\S+)?)\s*$", text, re.MULTILINE)
    if not ids:
        raise ValueError(f"qsub printed no job id: {text!r}")
    return str(ids[-1])


def _query(ids: Sequence[str]) -> list[str]:
    """The long format, because tables cut job ids; -x: with ended jobs."""
    return ["qstat", "-x", "-f", *ids]


def states(text: str, ids: Sequence[str]) -> dict[str, State]:
    """States by job number: a server may answer with a longer name than qsub printed."""
    by_number: dict[str, State] = {}
    for block in re.split(r"^Job Id:\s*", text, flags=re.MULTILINE)[1:]:
        state = re.search(r"^\s*job_state = (\w)", block, re.MULTILINE)
        if state:
            by_number[_number(block.split()[0])] = _STATES.get(state[1], "running")
    return states_of({job: by_number[_number(job)] for job in ids if _number(job) in by_number}, ids)


def _number(job: str) -> str:
    return job.partition(".")[0]


def forgot(errors: str) -> bool:
    """Ended jobs are forgotten after a while (or at once, without a history)."""
    return "Unknown Job Id" in errors or "Job has finished" in errors


def cancel(job: str) -> list[str]:
    """The command that ends a job."""
    return ["qdel", job]


def nodes(variables: Mapping[str, str]) -> list[str]:
    """The node file has a line per rank."""
    return unique(lines_of(variables, "PBS_NODEFILE"))


def requeues(variables: Mapping[str, str]) -> int:  # noqa: ARG001 - PBS has no variable for it
    """Always 0: unknown."""
    return 0


SCHEDULER = Scheduler(
    directives=directives,
    submit=submit,
    job_id=job_id,
    query=_query,
    states=states,
    forgot=forgot,
    cancel=cancel,
    nodes=nodes,
    end_time=script_end_time,
    requeues=requeues,
)
