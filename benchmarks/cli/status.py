"""`dlscale status`: the progress of the studies in a results folder, their failures and their jobs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from dlscale.base.definitions import read_json
from dlscale.base.errors import UsageError
from dlscale.base.strings import Data, Name, Text
from dlscale.benchmarks.cli import FAILED_CASES
from dlscale.benchmarks.cli.options import json_option, results_option, study_folders
from dlscale.benchmarks.cli.plan_table import counts_text
from dlscale.benchmarks.jobs.jobs import JobFiles, all_jobs
from dlscale.benchmarks.records.cell import is_canary
from dlscale.benchmarks.records.files import BadFile, summaries
from dlscale.benchmarks.study.study_file import read_study_file


class _Named(BaseModel):
    name: Name


class _Case(BaseModel):
    cell: dict[Text, Data]


class _Plan(BaseModel):
    """The fields of study.json that are shown; the file may be very long."""

    study: _Named
    launches: list[list[_Case]]


@click.command()
@results_option
@json_option
def status(results: Path, as_json: bool) -> int:
    """Show the progress of the studies in a results folder, and what failed.

    \b
    Example: dlscale status --results results
    """  # noqa: D301
    rows = [_row(folder) for folder in study_folders(results)]
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": rows}))
    for row in [] if as_json else rows:
        size = counts_text(
            num_cells=row["num_cells"], num_launches=row["num_launches"], num_cases=row["planned"]
        )
        lines = [
            f"{row['folder']}: {row['done']} of {row['planned']} cases done, {row['failed']} failed ({size})",
            *(f"  {job_line(job)}" for job in row["jobs"]),
            *(f"  {text}" for text in row["problems"]),
        ]
        click.echo("\n".join(lines))
    return FAILED_CASES if any(row["failed"] or row["problems"] for row in rows) else 0


def _row(folder: Path) -> dict[str, Any]:
    attempts, bad_files = summaries(folder)
    attempts = [attempt for attempt in attempts if not is_canary(attempt.case)]
    done = {attempt.case for attempt in attempts if attempt.good}
    not_done = sorted(attempt for attempt in attempts if attempt.case not in done)
    failed = {attempt.case: attempt for attempt in not_done}  # the latest attempt says why
    plan = _planned(folder / "study.json")
    cases = [case for launch in plan.launches for case in launch]
    return {
        "folder": str(folder),
        "study": plan.study.name,
        "planned": len(cases),
        "num_cells": len({json.dumps(case.cell, sort_keys=True) for case in cases}),
        "num_launches": len(plan.launches),
        "done": len(done),
        "failed": len(failed),
        "jobs": job_rows(folder),
        "failures": dict(Counter(attempt.failure_kind for attempt in failed.values())),
        "problems": [
            *(f"{attempt.case}: {attempt.failure_message}" for attempt in failed.values()),
            *_bad_lines(bad_files),
        ],
    }


def _bad_lines(bad_files: list[BadFile]) -> list[str]:
    """A line for each reason: the first file, and how many more."""
    paths: dict[str, list[Path]] = {}
    for bad in bad_files:
        paths.setdefault(bad.reason, []).append(bad.path)
    return [
        f"{first}: {reason}" + f" (and {len(more)} more such files)" * bool(more)
        for reason, (first, *more) in paths.items()
    ]


def _planned(path: Path) -> _Plan:
    """The study's name and cases. Raises UsageError if its plan cannot be read."""
    return read_json(_Plan, path, remedy="run the study again, which writes it")


def job_rows(folder: Path) -> list[dict[str, str | None]]:
    """Name, scheduler's id, state and reason of each job; none for a study without jobs.

    Away from the system its scheduler cannot be queried; the state is then the one that the job logged.
    """
    jobs = all_jobs(folder)
    if not jobs:
        return []
    from dlscale.benchmarks.jobs import submission

    system = read_study_file(folder).system
    try:
        states = dict(submission.job_states(system, jobs)) if system.is_here() else {}
        asked = bool(states)
    except UsageError as error:
        states, asked = {}, False
        problem = str(error)
    else:
        problem = system.elsewhere
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
    events = job.events()
    return str(events[-1].get("reason", "")) or None if job.has_ended else None
