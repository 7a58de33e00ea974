"""`dlscale compare STUDY --predicted`: predictions versus what the study measured, size by size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.findings import predicted_points
from dlscale.analysis.findings.predicted_points import (
    PREDICTED_POINTS,
    lead_sentences,
    placed_row,
)
from dlscale.analysis.render.grid import render_table
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.predicted_option import with_predictions
from dlscale.benchmarks.cli.study_report import load, tell_left_out
from dlscale.benchmarks.records.store import Store


def compare_predicted(folder: Path, named: Sequence[str], *, as_json: bool) -> int:
    """Print the predictions of sizes that the study in `folder` measured, with their errors; returns the exit status.

    Status 4 if it measured none of them, 2 if records were left out. Raises UsageError as `with_predictions`.
    """
    loaded = with_predictions(load(Store(folder)), named)
    points = [it for it in predicted_points.FINDING.of(loaded.study) if it.error is not None]
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": [placed_row(point) for point in points]}))
    else:
        console = Console(highlight=False)
        for part in render_table(PREDICTED_POINTS.of(points)):
            console.print(part)
        for sentence in lead_sentences(points):
            console.print(sentence, markup=False, soft_wrap=True)
        if not points:
            sizes = sorted({point.record.num_ranks for point in predicted_points.FINDING.of(loaded.study)})
            click.echo(
                f"{loaded.folder.name} measured none of the predicted sizes ({', '.join(map(str, sizes))} ranks)",
                err=True,
            )
    tell_left_out(loaded.study.bad_files, loaded.study.left_out)
    if loaded.study.bad_files or loaded.study.left_out:
        return FAILED_CASES
    return 0 if points else INSUFFICIENT_DATA
