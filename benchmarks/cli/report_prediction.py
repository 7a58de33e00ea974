"""`dlscale report FILE.jsonl`: a prediction again, from its records, and its page of what would be if."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.predict.grid import read_grid
from dlscale.analysis.predict.render import records_table
from dlscale.analysis.records import prediction_row
from dlscale.analysis.render.grid import render_table
from dlscale.benchmarks.records.prediction import ENDING, GRID, WHAT_IF, read_predictions


def report_prediction(path: Path, *, as_json: bool) -> int:
    """Print the predictions of a file; write the page with sliders where `predict --grid` left its table."""
    records = read_predictions(path)
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": [prediction_row(record) for record in records]}))
        return 0
    first, console = records[0], Console(highlight=False)
    console.print(
        f"predicted, nothing was measured on {first.system} here: {first.profile_evidence} profile, "
        f"{first.profile_source}; engine {first.engine} {first.engine_version}",
        markup=False,
        soft_wrap=True,
    )
    for part in render_table(records_table(records)):
        console.print(part)
    stem = path.name.removesuffix(ENDING)
    table, page = path.with_name(stem + GRID), path.with_name(stem + WHAT_IF)
    if table.exists():
        from dlscale.analysis.render.html.what_if import write_what_if  # takes longer than all else

        write_what_if(read_grid(table), page, asked_batch=first.batch, grid_name=table.name)
        click.echo(f"what if: {page}")
    else:
        click.echo(
            f"what if links, latency, noise or batch were others: {first.command or 'dlscale predict'} --grid"
        )
    return 0
