"""What `dlscale predict` leaves: the table on the screen; figure, CSV and records; a grid's table and page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from dlscale.analysis.predict.grid import Axes, check_grid, grid_rows, to_csv
from dlscale.analysis.predict.loggp import ENGINE, ENGINE_VERSION
from dlscale.analysis.predict.prediction import PredictedCurve, prediction_records
from dlscale.analysis.predict.render import (
    explanation,
    first_line,
    is_written,
    prediction_table,
    profile_lines,
)
from dlscale.analysis.predict.scenario import Scenario
from dlscale.analysis.published.catalogue import load_published
from dlscale.base import redaction
from dlscale.base.files import make_folder, write_atomically
from dlscale.benchmarks.cli.predict_options import PredictOptions
from dlscale.benchmarks.records.prediction import ENDING, GRID, PREDICTIONS_FOLDER, WHAT_IF, write_predictions


def show_curves(curves: Sequence[PredictedCurve], options: PredictOptions) -> None:
    """Print the curves of one training, and write their files unless these have the same numbers."""
    # Here, because rows for programs are printed without a table.
    from dlscale.analysis.render.grid import render_table

    scenario = curves[0].scenario
    console = Console(highlight=False)
    texts = [first_line(scenario), *profile_lines(scenario)]
    for curve in curves:
        if curve.scenario.calibrated_nodes:
            from dlscale.benchmarks.cli.calibration import calibration_line

            texts.append(calibration_line(curve.scenario))
        texts += [f"not to be trusted: {doubt}" for doubt in curve.scenario.doubts]
    for text in texts:
        console.print(text, markup=False, soft_wrap=True)
    for part in render_table(prediction_table(curves)):
        console.print(part)
    if options.explain:
        for curve in curves:
            for text in explanation(curve):
                console.print(text, markup=False, soft_wrap=True)
    stem = _stem(scenario, options)
    if not is_written(curves, stem):
        _write(curves, stem)
    console.print(
        f"figure, CSV and records: {stem}.png, {stem.name}.csv, {stem.name}{ENDING}",
        markup=False,
        soft_wrap=True,
    )


def put_grid(
    axes: Axes, scenarios: Sequence[Scenario], sizes: Sequence[int], options: PredictOptions
) -> None:
    """Write the grid's table and page beside the prediction's files, with progress. Raises UsageError."""
    from dlscale.analysis.render.html.what_if import write_what_if  # takes longer to import than a prediction

    stem, count = _stem(scenarios[0], options), check_grid(axes, scenarios, sizes)
    click.echo(f"what if: {count:,} points by {ENGINE} {ENGINE_VERSION}", err=True)
    rows = list(
        track(grid_rows(axes, scenarios, sorted(sizes)), total=count, description="what if", transient=True)
    )
    make_folder(stem.parent)
    table, page = Path(f"{stem}{GRID}"), Path(f"{stem}{WHAT_IF}")
    write_atomically(table, to_csv(rows), mode=0o644)
    write_what_if(rows, page, asked_batch=scenarios[0].batch, grid_name=table.name)
    click.echo(f"what if: {page}, {table.name}")


def _stem(scenario: Scenario, options: PredictOptions) -> Path:
    """The files of a prediction, without their endings."""
    profile = scenario.profile
    name = f"{profile.workload}-{profile.preset}-{profile.framework}-{options.kind}"
    return options.results / scenario.network.name / PREDICTIONS_FOLDER / name


def _write(curves: Sequence[PredictedCurve], stem: Path) -> None:
    """Imports matplotlib, which takes longer than the prediction."""
    from dlscale.analysis.predict.figures import draw_prediction
    from dlscale.benchmarks.launch.environment import commit

    scenario = curves[0].scenario
    checkout, command = commit(), redaction.redact(shlex.join(["dlscale", *sys.argv[1:]]))
    make_folder(stem.parent)
    # First: the CSV, which says that all is written, comes last.
    write_predictions(prediction_records(curves, commit=checkout, command=command), Path(f"{stem}{ENDING}"))
    draw_prediction(
        curves,
        stem,
        small_print=[
            f"Profile: {scenario.profile.source}. Network: {scenario.network.source}.",
            *_published(scenario),
        ],
        commit=checkout,
        command=command,
    )


def _published(scenario: Scenario) -> Iterator[str]:
    asked = (scenario.network.name, scenario.profile.workload, scenario.scaling_mode)
    for statement in load_published().said_of(*asked):
        yield f"Published: {statement.statement} ({statement.source})."
