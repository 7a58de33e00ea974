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
from dlscale.base.strings import Data, Name, Text, plural
from dlscale.benchmarks.cli import FAILED_CASES
from dlscale.benchmarks.cli.options import json_option, results_option, study_folders
from dlscale.benchmarks.cli.streams import say
from dlscale.benchmarks.records.store import BadFile, load_records
from dlscale.benchmarks.study.study import STUDY_FILE, read_study_file


class _Named(BaseModel):
    name: Name


class _Case(BaseModel):
    cell: dict[Text, Data]


class Planned(BaseModel):
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
        size = f"{plural(row['num_cells'], 'cell')} in {plural(row['num_launches'], 'launch')}"
        say(f"{row['folder']}: {row['done']} of {row['planned']} cases done, {row['failed']} failed ({size})")
        for text in (*map(_job_line, row["jobs"]), *row["problems"]):
            say(f"  {text}")
    return FAILED_CASES if any(row["failed"] or row["problems"] for row in rows) else 0


def _row(folder: Path) -> dict[str, Any]:
    """A study's row. Raises UsageError if its plan cannot be read."""
    records, bad_files = load_records(folder)
    records = [record for record in records if record.case.cell.control != "canary"]
    done = {record.case.id for record in records if record.good}
    ordered = sorted(records, key=lambda record: (record.case.id, record.attempt))
    # The latest attempt says why.
    failed = {record.case.id: record.failure for record in ordered if record.case.id not in done}
    plan = read_json(Planned, folder / STUDY_FILE, remedy="run the study again, which writes it")
    cases = [case for launch in plan.launches for case in launch]
    return {
        "folder": str(folder),
        "study": plan.study.name,
        "planned": len(cases),
        "num_cells": len({json.dumps(case.cell, sort_keys=True) for case in cases}),
        "num_launches": len(plan.launches),
        "done": len(done),
        "failed": len(failed),
        "jobs": _job_rows(folder),
        "failures": dict(Counter(failure.kind for failure in failed.values() if failure)),
        "problems": [
            *(f"{case}: {failure.message}" for case, failure in failed.items() if failure),
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


def _job_rows(folder: Path) -> list[dict[str, str | None]]:
    """Name, scheduler's id, state and reason of each job; none for a study without jobs.

    Away from the system its scheduler cannot be queried; the state is then the one that the job logged.
    """
    if not (folder / "jobs").is_dir():
        return []
    from dlscale.benchmarks.jobs import submission
    from dlscale.benchmarks.jobs.jobs import all_jobs

    jobs = all_jobs(folder)
    system = read_study_file(folder).system
    problem, states = system.elsewhere, {}
    if system.is_here():
        try:
            states = dict(submission.job_states(system, jobs))
        except UsageError as error:
            problem = str(error)
    return [
        {
            "job": job.name,
            "id": job.id,
            "state": str(states[job.name]) if states else "ended" if job.has_ended else "unknown",
            "reason": job.end_reason or (None if states else problem),
        }
        for job in jobs
    ]


def _job_line(row: dict[str, str | None]) -> str:
    """`job-000: running as job 4711`."""
    place = f" as job {row['id']}" if row["id"] and row["state"] in ("pending", "running") else ""
    reason = f" ({row['reason']})" if row["reason"] and not place else ""
    return f"{row['job']}: {row['state']}{place}{reason}"
