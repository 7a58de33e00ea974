"""Predictions of files that are named: beside a study's numbers, and held against them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from dlscale.analysis.declare import Table
from dlscale.analysis.findings import predicted_points
from dlscale.analysis.findings.predicted_points import (
    PREDICTED_POINTS,
    lead_sentences,
    place_predictions,
    placed_row,
    training_text,
)
from dlscale.analysis.frames.load import Study
from dlscale.analysis.render.grid import render_table
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.study_report import Loaded, load, load_study, tell_left_out
from dlscale.benchmarks.records.prediction import ENDING, PREDICTIONS_FOLDER, read_predictions
from dlscale.benchmarks.records.record import Base
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
    """The study with the named predictions beside its table.

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
    return replace(loaded, study=replace(loaded.study, predictions=tuple(records)))


def load_predicted(store: Store, named: Sequence[str], *, base: Base | None = None) -> Study:
    """The frames of the study with the named predictions. Raises UsageError as `with_predictions`."""
    study = load_study(store, base=base)
    if named:
        study.predictions = list(with_predictions(load(store, base=base), named).study.predictions)
    return study


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


def _print_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    click.echo(json.dumps({"schema": 1, "rows": list(rows)}))


def _print(parts: Iterable[Table | str]) -> None:
    console = Console(highlight=False)
    for part in parts:
        if isinstance(part, str):
            console.print(part, markup=False, soft_wrap=True)
        else:
            console.print(*render_table(part), sep="\n")
