"""`dlscale status`: the progress of the studies in a results folder, their failures and their jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, say, show_table
from dlscale.benchmarks.cli.options import json_option, results_option, study_folders
from dlscale.benchmarks.records.store import Store, load_records
from dlscale.benchmarks.study.study import read_study_file

COUNTS = ("done", "failed", "cases", "cells", "launches")


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
        click.echo(json.dumps({"schema": 2, "rows": rows}))
    else:
        columns = ("study", "system", *COUNTS)
        show_table(columns, ([row[name] for name in columns] for row in rows), words=("study", "system"))
        for row in rows:
            for job in row["jobs"]:
                facts = job["state"], job["id"] and f"job {job['id']}", job["reason"]
                say(f"{row['study']}: {job['job']}: {', '.join(filter(None, facts))}")
            for problem in row["problems"]:
                say(f"{row['study']}: {problem}")
    return FAILED_CASES if any(row["failed"] or row["problems"] for row in rows) else 0


def _row(folder: Path) -> dict[str, Any]:
    """A study's row. Raises UsageError if its plan cannot be read."""
    planned = Store(folder).planned()
    records, bad_files = load_records(folder)
    ordered = sorted(records, key=lambda record: (record.case.id, record.attempt))
    done = {record.case.id for record in ordered if record.good}
    # The latest attempt says why.
    failed = {it.case.id: it.failure for it in ordered if it.failure and it.case.id not in done}
    return {
        "folder": str(folder),
        "study": folder.name,
        "system": folder.resolve().parent.name,
        "done": len(done),
        "failed": len(failed),
        "cases": len(planned),
        "cells": len({case.cell.id for case in planned}),
        "launches": len({(case.block, case.position) for case in planned}),
        "jobs": _jobs(folder) if (folder / "jobs").is_dir() else [],
        "problems": [
            *(f"{case}: {failure.message}" for case, failure in failed.items()),
            *(f"{bad.path}: {bad.reason}" for bad in bad_files),
        ],
    }


def _jobs(folder: Path) -> list[dict[str, str | None]]:
    """Name, scheduler's id, state and reason of each job; where no scheduler answers, the state that the job logged."""
    from dlscale.benchmarks.jobs import submission
    from dlscale.benchmarks.jobs.jobs import all_jobs

    jobs, system = all_jobs(folder), read_study_file(folder).system
    states, problem = {}, system.elsewhere
    try:
        states = dict(submission.job_states(system, jobs)) if system.is_here() else {}
    except UsageError as error:
        problem = str(error)
    return [
        {
            "job": job.name,
            "id": job.id,
            "state": str(states.get(job.name, "unknown" if job.end_reason is None else "ended")),
            "reason": job.end_reason or (None if states else problem),
        }
        for job in jobs
    ]
