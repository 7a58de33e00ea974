"""Predictions from named files: next to a study's numbers, and compared with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.text import Text

from dlscale.analysis.findings import predicted
from dlscale.analysis.load import Study
from dlscale.analysis.render.screen import grid
from dlscale.analysis.render.text import rows_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.study_report import load, tell_left_out
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
        help=f"Predictions to show next to what was measured: {ENDING} files that dlscale predict wrote, by path or by "
        f"the beginning of the name, or {LATEST}: all of the system; default: none.",
    )(command)


def load_predicted(
    store: Store, named: Sequence[str], *, base: Base | None = None, running: bool = False
) -> Study:
    """The frames of the study with the named predictions.

    Those of other trainings are named on stderr. Raises UsageError for a file that is not there or not valid, and if no
    prediction belongs to the study.
    """
    study = load(store, base=base, running=running)
    if not named:
        return study
    folder = store.folder.resolve().parent / PREDICTIONS_FOLDER
    files = list(dict.fromkeys(path for name in named for path in _files(folder, name)))
    study.predictions = [record for path in files for record in read_predictions(path)]
    if predicted.FINDING.of(study).empty:
        asked = "; ".join(dict.fromkeys(map(predicted.stated, study.predictions)))
        trained = "; ".join(dict.fromkeys(study.trained["training"]))
        raise UsageError(
            f"no prediction in {', '.join(named)} belongs to {study.name}: predicted is {asked}; the study has "
            f"{trained or 'no training'}; predict that with dlscale predict"
        )
    for sentence in predicted.not_shown(study):
        click.echo(f"not shown: {sentence}", err=True)
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

    Status 4 if it measured none of them, 2 if records were left out. Raises UsageError as `load_predicted`.
    """
    study = load_predicted(Store(folder), named)
    every = predicted.FINDING.of(study)
    rows = every[every["error"].notna()]
    if as_json:
        click.echo(json.dumps({"schema": 2, "rows": rows_of(predicted.FINDING.exported(rows))}))
    elif len(rows):
        console = Console(highlight=False)
        console.print(Text(predicted.FINDING.sentence(rows)))
        console.print(grid(predicted.FINDING.table(rows)))
    else:
        sizes = ", ".join(map(str, sorted(set(every["num_ranks"]))))
        click.echo(f"{study.name} measured none of the predicted sizes ({sizes} ranks)", err=True)
    if tell_left_out(study.bad_files, study.left_out):
        return FAILED_CASES
    return 0 if len(rows) else INSUFFICIENT_DATA
