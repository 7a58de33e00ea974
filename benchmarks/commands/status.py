"""`dlscale status`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from dlscale.benchmarks.cli import FAILED_CASES
from dlscale.benchmarks.commands.options import json_option, results_option
from dlscale.benchmarks.commands.studies import study_folders
from dlscale.benchmarks.record_files import load_records


@click.command()
@results_option
@json_option
def status(results: Path, as_json: bool) -> int:
    """Say how far the studies in a results folder are, and what failed.

    \b
    Example: dlscale status --results results
    """  # noqa: D301
    rows = [_row(folder) for folder in study_folders(results)]
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": rows}))
    for row in [] if as_json else rows:
        click.echo(f"{row['folder']}: {row['done']} of {row['planned']} cases done, {row['failed']} failed")
        for text in row["problems"]:
            click.echo(f"  {text}")
    return FAILED_CASES if any(row["failed"] or row["problems"] for row in rows) else 0


def _row(folder: Path) -> dict[str, Any]:
    records, bad_files = load_records(folder)
    done = {record.case.id for record in records if record.good}
    failed = {record.case.id: record for record in records if record.failure and record.case.id not in done}
    description = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    kinds = Counter(record.failure.kind for record in failed.values() if record.failure)
    texts = [f"{name}: {record.failure.message}" for name, record in failed.items() if record.failure]
    return {
        "folder": str(folder),
        "study": description["study"]["name"],
        "planned": sum(len(cases) for cases in description["launches"]),
        "done": len(done),
        "failed": len(failed),
        "failures": dict(kinds),
        "problems": [*texts, *(f"{bad.path}: {bad.reason}" for bad in bad_files)],
    }
