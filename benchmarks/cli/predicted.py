"""Predictions shown and written, and from such files: beside a study's numbers, held against them, by themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import track

from dlscale.analysis.declare import Table
from dlscale.analysis.findings import predicted_points
from dlscale.analysis.findings.predicted_points import (
    PREDICTED_POINTS,
    lead_sentences,
    place_predictions,
    placed_row,
    training_text,
)
from dlscale.analysis.predict.grid import Axes, grid_rows, read_grid
from dlscale.analysis.predict.prediction import PredictedCurve, prediction_records
from dlscale.analysis.predict.ranking import unknown_ranking
from dlscale.analysis.predict.render import (
    assumption_line,
    basis_lines,
    explanation,
    first_line,
    network_line,
    prediction_table,
    state_line,
)
from dlscale.analysis.predict.scenario import ASSUMED, Scenario
from dlscale.analysis.published.said import said_of
from dlscale.analysis.records import prediction_row
from dlscale.analysis.render.grid import render_table
from dlscale.analysis.render.html.content import WhatIf
from dlscale.analysis.render.html.what_if import what_if_block, write_what_if
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.study_report import Loaded, load, tell_left_out
from dlscale.benchmarks.records.prediction import ENDING, GRID, PREDICTIONS_FOLDER, WHAT_IF, read_predictions
from dlscale.benchmarks.records.store import Store

F = TypeVar("F", bound=Callable[..., Any])
LATEST = "latest"


def predicted_option(command: F) -> F:
    """Add --predicted."""
    return click.option(
        "--predicted",
        type=Words(),
        default=[],
        metavar="FILE,...",
        help=f"Predictions to show beside what was measured: {ENDING} files that dlscale predict wrote, by path or by "
        f"the beginning of the name, or {LATEST}: all of the system; default: none.",
    )(command)


def with_predictions(loaded: Loaded, named: Sequence[str]) -> Loaded:
    """The study with the named predictions beside its table, and what would be if where `--grid` left a table.

    Those of other trainings are told on stderr. Raises UsageError for a file that is not there or not valid, and if no
    prediction belongs to the study.
    """
    if not named:
        return loaded
    folder = loaded.folder.resolve().parent / PREDICTIONS_FOLDER
    files = list(dict.fromkeys(path for name in named for path in _files(folder, name)))
    records = [record for path in files for record in read_predictions(path)]
    points, left = place_predictions(records, loaded.rows)
    if not points:
        predicted = "; ".join(dict.fromkeys(map(training_text, records)))
        trained = "; ".join(f"{family.title}, batch {family.batch}" for family in loaded.study.families)
        raise UsageError(
            f"no prediction in {', '.join(named)} belongs to {loaded.folder.name}: predicted is {predicted}; the "
            f"study has {trained or 'no training'}; predict that with dlscale predict"
        )
    for sentence in left:
        click.echo(f"not shown: {sentence}", err=True)
    what_ifs = tuple(block for path in files for block in _what_if(path, loaded))
    return replace(loaded, study=replace(loaded.study, predictions=tuple(records)), what_ifs=what_ifs)


def _what_if(path: Path, loaded: Loaded) -> Iterator[WhatIf]:
    """The grid beside a file of predictions, if these are of the study's trainings."""
    grid, records = path.with_name(path.name.removesuffix(ENDING) + GRID), read_predictions(path)
    if grid.exists() and place_predictions(records, loaded.rows)[0]:
        yield what_if_block(read_grid(grid), asked_batch=records[0].batch, grid_name=grid.name)


def _files(folder: Path, name: str) -> list[Path]:
    """The files of that name: a path, the beginning of names in `folder`, or all of it. Raises UsageError for none."""
    if name != LATEST and Path(name).is_file():
        return [Path(name)]
    known = sorted(folder.glob(f"*{ENDING}"))
    if found := [path for path in known if name == LATEST or path.name.startswith(name)]:
        return found
    names = ", ".join(path.name for path in known)
    choices = f"choose one of: {names}" if known else "make some: dlscale predict"
    raise UsageError(f"no predictions {name!r} in {folder}; {choices}")


def compare_predicted(folder: Path, named: Sequence[str], *, as_json: bool) -> int:
    """Print the predictions of sizes that the study in `folder` measured, with their errors; returns the exit status.

    Status 4 if it measured none of them, 2 if records were left out. Raises UsageError as `with_predictions`.
    """
    loaded = with_predictions(load(Store(folder)), named)
    every = predicted_points.FINDING.of(loaded.study)
    points = [point for point in every if point.error is not None]
    if as_json:
        _print_rows(map(placed_row, points))
    else:
        _print([PREDICTED_POINTS.of(points), *lead_sentences(points)])
        if not points:
            sizes = sorted({point.record.num_ranks for point in every})
            click.echo(
                f"{loaded.folder.name} measured none of the predicted sizes ({', '.join(map(str, sizes))} ranks)",
                err=True,
            )
    tell_left_out(loaded.study.bad_files, loaded.study.left_out)
    if loaded.study.bad_files or loaded.study.left_out:
        return FAILED_CASES
    return 0 if points else INSUFFICIENT_DATA


def report_prediction(path: Path, *, as_json: bool) -> int:
    """Print the predictions of a file; write the page with sliders where `predict --grid` left its table."""
    records = read_predictions(path)
    if as_json:
        _print_rows(map(prediction_row, records))
        return 0
    first, stem = records[0], path.name.removesuffix(ENDING)
    _print([first_line(first), prediction_table(records)])
    table, page = path.with_name(stem + GRID), path.with_name(stem + WHAT_IF)
    if table.exists():
        write_what_if(read_grid(table), page, asked_batch=first.batch, grid_name=table.name)
        click.echo(f"what if: {page}")
    else:
        again = first.command or "dlscale predict"
        click.echo(f"what if links, latency, noise or batch were others: {again} --grid")
    return 0


def show_curves(
    curves: Sequence[PredictedCurve], stem: Path, *, explain: bool = False, commit: str, command: str
) -> None:
    """Print what is predicted of one training, and write its figure, CSV and records unless they are there."""
    from dlscale.analysis.predict.figures import write_prediction  # takes longer to import than all else

    records, scenario = list(prediction_records(curves)), curves[0].scenario
    first = records[0]
    published = list(said_of(first.system, first.workload, scenario.scaling_mode))
    doubts = dict.fromkeys(doubt for record in records for doubt in record.doubts)
    above = [
        first_line(first),
        *(f"published: {it}" for it in published),
        *filter(None, (network_line(curves), state_line(curves))),
        *(f"doubt: {doubt}" for doubt in doubts if not doubt.startswith(ASSUMED)),
    ]
    below = [text for curve in curves if explain for text in explanation(curve)]
    for curve in curves:
        if curve.scenario.calibrated_nodes or curve.scenario.network.within_node:
            from dlscale.analysis.predict.calibration_records import calibration_line

            below.append(calibration_line(curve.scenario))
    below = [*filter(None, [unknown_ranking(curves)]), *below]
    below += [*basis_lines(scenario), *filter(None, [assumption_line(records)])]
    _print([*above, prediction_table(records), *below])
    small_print = [f"Published: {it}." for it in published]
    write_prediction(curves, stem, small_print=small_print, commit=commit, command=command)
    _print([f"figure, CSV and records: {stem}.png, {stem.name}.csv, {stem.name}{ENDING}"])


def show_grid(axes: Axes, scenarios: Sequence[Scenario], sizes: Sequence[int], stem: Path) -> None:
    """Write the grid's table and page beside the prediction's files, with progress. Raises UsageError."""
    from dlscale.analysis.predict.figures import write_grid

    every, count = grid_rows(axes, scenarios, sorted(sizes)), axes.num_points(scenarios, sizes)
    rows = list(track(every, total=count, description=f"what if: {count:,} points", transient=True))
    page, table = write_grid(rows, stem, asked_batch=scenarios[0].batch)
    click.echo(f"what if: {page}, {table.name}")


def _print_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    click.echo(json.dumps({"schema": 1, "rows": list(rows)}))


def _print(parts: Iterable[Table | str]) -> None:
    console = Console(highlight=False)
    for part in parts:
        if isinstance(part, str):
            console.print(part, markup=False, soft_wrap=True)
        else:
            console.print(*render_table(part), sep="\n")
