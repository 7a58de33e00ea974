"""`dlscale status`: the progress of the studies in a results folder, their failures and their jobs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES
from dlscale.benchmarks.cli.options import json_option, results_option, study_folders
from dlscale.benchmarks.cli.streams import say, show_table
from dlscale.benchmarks.records.store import Store, load_records
from dlscale.benchmarks.study.study import read_study_file

COLUMNS = {
    "study": "study",
    "system": "system",
    "done": "done",
    "failed": "failed",
    "planned": "cases",
    "num_cells": "cells",
    "num_launches": "launches",
}


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
    else:
        cells = ([row[name] for name in COLUMNS] for row in rows)
        show_table(list(COLUMNS.values()), cells, words=("study", "system"))
        for row in rows:
            for text in (*map(_job_line, row["jobs"]), *row["problems"]):
                say(f"{row['study']}: {text}")
    return FAILED_CASES if any(row["failed"] or row["problems"] for row in rows) else 0


def _row(folder: Path) -> dict[str, Any]:
    """A study's row. Raises UsageError if its plan cannot be read."""
    planned = Store(folder).planned()
    records, bad_files = load_records(folder)
    ordered = sorted(records, key=lambda record: (record.case.id, record.attempt))
    own = [record for record in ordered if record.case.cell.control != "canary"]
    done = {record.case.id for record in own if record.good}
    # The latest attempt says why.
    failed = {it.case.id: it.failure for it in own if it.failure and it.case.id not in done}
    return {
        "folder": str(folder),
        "study": folder.name,
        "system": folder.resolve().parent.name,
        "planned": len(planned),
        "num_cells": len({case.cell.id for case in planned}),
        "num_launches": len({(case.block, case.position) for case in planned}),
        "done": len(done),
        "failed": len(failed),
        "jobs": _job_rows(folder),
        "failures": dict(Counter(failure.kind for failure in failed.values())),
        "problems": [
            *(f"{case}: {failure.message}" for case, failure in failed.items()),
            *(f"{bad.path}: {bad.reason}" for bad in bad_files),
        ],
    }


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
    try:
        states = dict(submission.job_states(system, jobs)) if system.is_here() else {}
    except UsageError as error:
        problem = str(error)
    return [
        {
            "job": job.name,
            "id": job.id,
            "state": str(states.get(job.name, "ended" if job.has_ended else "unknown")),
            "reason": job.end_reason or (None if states else problem),
        }
        for job in jobs
    ]


def _job_line(row: dict[str, str | None]) -> str:
    """`job-000: running as job 4711`."""
    place = f" as job {row['id']}" if row["id"] and row["state"] in ("pending", "running") else ""
    reason = f" ({row['reason']})" if row["reason"] and not place else ""
    return f"{row['job']}: {row['state']}{place}{reason}"
