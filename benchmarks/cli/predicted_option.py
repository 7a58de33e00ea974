"""`--predicted`: predictions that a verb shows beside a study's numbers, from files that `dlscale predict` wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from dlscale.analysis.declare import WhatIf
from dlscale.analysis.findings.predicted_points import place_predictions, training_text
from dlscale.analysis.predict.grid import read_grid
from dlscale.analysis.render.html.what_if import what_if_block
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.study_report import Loaded
from dlscale.benchmarks.records.prediction import (
    ENDING,
    GRID,
    PREDICTIONS_FOLDER,
    read_predictions,
)

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

    Those of other trainings are told on stderr.

    Raises UsageError for a file that is not there or not sound, and if no prediction belongs to the study.
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
    choices = (
        f"choose one of: {', '.join(path.name for path in known)}" if known else "make some: dlscale predict"
    )
    raise UsageError(f"no predictions {name!r} in {folder}; {choices}")
