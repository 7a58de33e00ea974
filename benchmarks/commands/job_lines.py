"""What became of a study's jobs, for `dlscale status`."""

from __future__ import annotations

from pathlib import Path

from dlscale.benchmarks.job_files import JobFiles, all_jobs
from dlscale.benchmarks.study_file import read_study_file
from dlscale.models.errors import UsageError


def job_rows(folder: Path) -> list[dict[str, str | None]]:
    """Name, scheduler's id, state and reason of each job; nothing of a study that has none.

    Away from the system nobody can be asked: the state is then what the job said itself.
    """
    jobs = all_jobs(folder)
    if not jobs:
        return []
    from dlscale.benchmarks import submission

    system = read_study_file(folder).system
    try:
        states = dict(submission.job_states(system, jobs)) if system.is_here() else {}
        asked = bool(states)
    except UsageError as error:
        states, asked = {}, False
        problem = str(error)
    else:
        problem = f"this machine is not {system.name}"
    rows = []
    for job in jobs:
        reason = _reason(job)
        state = str(states[job.name]) if asked else "ended" if job.has_ended else "unknown"
        rows.append(
            {"job": job.name, "id": job.id, "state": state, "reason": reason or (None if asked else problem)}
        )
    return rows


def job_line(row: dict[str, str | None]) -> str:
    """`job-000: running as job 4711`."""
    place = f" as job {row['id']}" if row["id"] and row["state"] in ("pending", "running") else ""
    reason = f" ({row['reason']})" if row["reason"] and not place else ""
    return f"{row['job']}: {row['state']}{place}{reason}"


def _reason(job: JobFiles) -> str | None:
    ends = [event["reason"] for event in job.events() if event["event"] == "end"]
    return str(ends[-1]) if ends and job.has_ended else None
