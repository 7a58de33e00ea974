"""The jobs of a campaign: their limits, submitting them to a scheduler, and asking for their states.

On a machine that is not the system's own, a rehearsal writes the scripts that the system would get
(`write_rehearsal`).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlscale.base.batch import JobRequest, Scheduler, State
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, write_atomically
from dlscale.base.schedulers import SCHEDULERS
from dlscale.base.strings import redact
from dlscale.benchmarks.jobs.jobs import WARN_SECONDS, Job, JobFiles, JobState, all_jobs
from dlscale.benchmarks.jobs.script import batch_script
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.study.plan import Launch, chosen_partition
from dlscale.benchmarks.systems.system import System

PROGRAM = ("-P", "-m", "dlscale.benchmarks.jobs.allocation")
COMMAND_SECONDS = 120  # a scheduler that does not answer for so long is down


def job_script(campaign: Campaign, job: Job, *, account: str | None) -> str:
    """The batch script of a job, exactly as the scheduler is given it."""
    study, system = campaign.plan.study, campaign.system
    folder = campaign.store.folder.absolute()
    request = JobRequest(
        name=f"{study.name}-{job.name}",
        num_nodes=job.num_nodes,
        ranks_per_node=campaign.plan.shape.ranks_per_node or 1,
        seconds=job.seconds,
        directives=tuple(chosen_partition(study, system).directives),
        account=account,
        output=str(JobFiles(folder, job.name).path("log")),
        folder=str(Path.cwd()),  # where relative prefixes of environments begin
        warn_seconds=WARN_SECONDS,
    )
    command = [str(campaign.installation.python), *PROGRAM, str(folder), job.name]
    return batch_script(system, system.environments[campaign.installation.name], request, command)


def submit(campaign: Campaign, jobs: Sequence[Job], *, account: str | None) -> list[JobFiles]:
    """Hand the jobs to the system's scheduler, in order.

    Raises UsageError with the scheduler's own message if it refuses a job; the jobs before it stay submitted. A job of
    which it is not known whether it was taken is not submitted again (`JobFiles.id`).
    """
    commands = SCHEDULERS[campaign.system.scheduler]
    submitted: list[JobFiles] = []
    for job in jobs:
        files = JobFiles(campaign.store.folder, job.name)
        command = [*commands.submit, str(files.path("sh").absolute())]
        _require(command[0])
        make_folder(files.path("json").parent)
        write_atomically(files.path("json"), job.model_dump_json())
        write_atomically(files.path("sh"), job_script(campaign, job, account=account))
        files.accepted("")  # whoever is killed now, or gets no answer, does not submit it again
        done = _run(command, campaign.store.folder)
        if done.returncode:
            files.path("id").unlink()
            raise UsageError(
                f"{command[0]} refused (exit status {done.returncode}): {_last_line(done)}; correct that, and give "
                "the same command again"
            )
        try:
            files.accepted(commands.job_id(done.stdout))
        except ValueError as error:
            raise UsageError(
                f"{files.name} may have been submitted, but its number is unknown: {error}; {files.remedy}"
            ) from None
        submitted.append(files)
    return submitted


def job_states(system: System, jobs: Sequence[JobFiles]) -> dict[str, JobState]:
    """Each job's state by its name. Raises UsageError if the scheduler does not answer."""
    known = _scheduler_states(SCHEDULERS[system.scheduler], [job.id for job in jobs if job.id])
    by_name: dict[str, JobState] = {}
    for job in jobs:
        state = known.get(job.id or "", "unknown")
        if state == "pending" or state == "running":
            by_name[job.name] = state
        elif job.end_reason is not None:
            by_name[job.name] = "ended"
        else:
            by_name[job.name] = "vanished" if job.id or job.last_event() else "never submitted"
    return by_name


def _scheduler_states(commands: Scheduler, ids: Sequence[str]) -> Mapping[str, State]:
    """The states of those jobs. Some schedulers fail a whole query for one id that they have forgotten."""
    if not ids:
        return {}
    query = commands.query(ids)
    _require(query[0])
    done = _run(query)
    if done.returncode == 0:
        return commands.states(done.stdout, ids)
    if not re.search(commands.forgotten, done.stderr):  # the scheduler is down
        raise UsageError(f"{query[0]} failed: {_last_line(done)}; try again when the scheduler answers")
    if len(ids) == 1:
        return {ids[0]: "unknown"}
    return {job: state for job in ids for state in _scheduler_states(commands, [job]).values()}


def _run(command: Sequence[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The finished command. Raises UsageError if it does not answer."""
    try:
        return subprocess.run(
            list(command),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMMAND_SECONDS,
            cwd=cwd,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{command[0]} did not answer for {COMMAND_SECONDS} s; try again later") from None


def _require(name: str) -> None:
    if not shutil.which(name):
        raise UsageError(f"no {name} here; run this where the system's scheduler can be reached")


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return redact((done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1])


def results_folder(system: System, results: Path, *, named: bool) -> Path:
    """The folder for records of its jobs: the system's own, unless the user has `named` one. Raises UsageError."""
    if named or not system.filesystem:
        return results
    path = os.path.expandvars(system.filesystem.results)
    if "$" in path:
        raise UsageError(
            f"results on {system.name} belong in {system.filesystem.results}, but that variable is not set; "
            "set it, or give --results"
        )
    return Path(path)


def check_node_hours(jobs: Sequence[Job], most: float | None) -> None:
    """Raises UsageError if the jobs may be billed more node-hours than that."""
    billed = sum(job.billed_node_hours for job in jobs)
    if most is not None and billed > most:
        raise UsageError(
            f"these jobs may be billed {billed:.1f} node-hours, more than max_node_hours = {most:g}; use fewer "
            "nodes, launches or backends, or a smaller --budget"
        )


def not_submitted(campaign: Campaign, left: Sequence[Launch]) -> tuple[list[Launch], int]:
    """Those of the launches that are in no pending or running job, and the index of the next job."""
    known = all_jobs(campaign.store.folder)
    states = job_states(campaign.system, known)
    busy = {
        case.id
        for job in known
        if states[job.name] in ("pending", "running")
        for launch in job.read().launches
        for case in launch.cases
    }
    todo = [launch for launch in left if not busy & {case.id for case in launch.cases}]
    return todo, 1 + max((int(job.name.removeprefix("job-")) for job in known), default=-1)


def write_rehearsal(
    campaign: Campaign, jobs: Sequence[Job], command: str, *, account: str | None
) -> list[dict[str, Any]]:
    """Scripts and launches' command lines, in the campaign's folder, with the `command` that submits them.

    Nothing there is a record. Returns a row per job.
    """
    folder = make_folder(campaign.store.folder)
    rows = []
    for job in jobs:
        write_atomically(folder / f"{job.name}.sh", job_script(campaign, job, account=account))
        lines = [shlex.join(campaign.command(launch)) for launch in job.launches]
        write_atomically(folder / f"{job.name}.launches.txt", "\n".join(lines) + "\n")
        rows.append(
            {
                "job": job.name,
                "num_nodes": job.num_nodes,
                "num_launches": len(job.launches),
                "seconds": job.seconds,
                "billed_node_hours": job.billed_node_hours,
            }
        )
    facts = {"command": command, "evidence": "nothing was measured", "jobs": rows}
    write_atomically(folder / "rehearsal.json", json.dumps(facts, indent=1))
    return rows
