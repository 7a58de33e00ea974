"""Predictions printed and written: of `dlscale predict`, of a file of them, and of a rehearsal with its page."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from pydantic import Field
from rich.console import Console

from dlscale.analysis.predict.prediction import PredictedCurve, prediction_records
from dlscale.base.definitions import Frozen, read_json
from dlscale.base.strings import Text
from dlscale.benchmarks.records.prediction import ENDING, PredictionRecord, read_predictions
from dlscale.benchmarks.systems.system import load_system

FIGURES, PAGE = "figures", "report.html"  # of a rehearsal


def show_curves(
    trainings: Sequence[Sequence[PredictedCurve]],
    *,
    stem_of: Callable[[PredictionRecord], Path],
    command: str,
    commit: str | None = None,
    as_json: bool = False,
) -> None:
    """Print what is predicted of each training, and write figure, CSV and records; as JSON nothing is written."""
    # Here, because tables and figures take longer to import than predictions.
    from dlscale.analysis.predict import show
    from dlscale.benchmarks.launch import probe

    commit = probe.commit() if commit is None else commit
    found = [
        list(prediction_records(curves, commit=commit, command=command)) for curves in trainings if curves
    ]
    if as_json:
        _print_json([record for records in found for record in records])
        return
    for records in found:
        stem, study = stem_of(records[0]), show.study_of(records)
        show.show(study, Console(highlight=False))
        show.write(study, stem)
        click.echo(f"figure, CSV and records: {stem}.png, {stem.name}.csv, {stem.name}{ENDING}")


def report_prediction(path: Path, *, as_json: bool) -> int:
    """Print the predictions of a file; returns the exit status. Raises UsageError for a file that is not sound."""
    records = read_predictions(path)
    if as_json:
        _print_json(records)
        return 0
    from dlscale.analysis.predict import show

    show.show(show.study_of(records), Console(highlight=False))
    return 0


class JobFacts(Frozen, extra="ignore"):
    """A job as rehearsal.json has it."""

    job: Text
    num_nodes: int
    num_launches: int
    seconds: float
    billed_node_hours: float | None


class RehearsalFacts(Frozen, extra="ignore"):
    """What a page needs of rehearsal.json."""

    command: Text
    jobs: tuple[JobFacts, ...] = Field(default=())


def rehearsed_folder(results: Path, name: str | None, *, system: str | None = None) -> Path | None:
    """The folder of that path, or of the latest rehearsal whose name begins so, on that system; None without one."""
    from dlscale.benchmarks.jobs.submission import REHEARSAL_FILE  # with all that jobs need

    if name is not None and (Path(name) / REHEARSAL_FILE).is_file():
        return Path(name)
    place = load_system(system).name if system else "*"
    files = sorted(results.glob(f"{place}/*/{REHEARSAL_FILE}"), key=lambda path: path.stat().st_mtime)
    return next((path.parent for path in reversed(files) if path.parent.name.startswith(name or "")), None)


def report_rehearsal(folder: Path, *, as_json: bool, in_browser: bool) -> int:
    """Print what a rehearsal predicts and write its page; returns the exit status."""
    records = predictions_in(folder)
    if as_json:
        _print_json(records)
        return 0
    from dlscale.analysis.predict import show
    from dlscale.benchmarks.cli.browser import open_page

    click.echo(f"rehearsal: nothing was measured on {folder.resolve().parent.name}")
    show.show(show.study_of(records), Console(highlight=False))
    put_rehearsal(folder)
    if in_browser and (folder / PAGE).is_file():
        open_page(folder / PAGE)
    return 0


def put_rehearsal(folder: Path) -> None:
    """Write the page of the rehearsal in `folder`, and print where it is."""
    from dlscale.analysis.predict import show
    from dlscale.benchmarks.jobs.submission import REHEARSAL_FILE

    facts = read_json(RehearsalFacts, folder / REHEARSAL_FILE, remedy="rehearse again")
    name, system = folder.resolve().name, folder.resolve().parent.name
    show.write_page(
        show.study_of(predictions_in(folder)),
        folder / PAGE,
        name=system,
        facts={"Rehearsal": name, "To measure it": f"{facts.command} (on {system})"},
        more=[show.jobs([job.model_dump() for job in facts.jobs])],
    )
    click.echo(f"report: {folder / PAGE}")


def predictions_in(folder: Path) -> list[PredictionRecord]:
    """The predictions of a rehearsal."""
    files = sorted((folder / FIGURES).glob(f"*{ENDING}"))
    return [record for path in files for record in read_predictions(path)]


def _print_json(records: Sequence[PredictionRecord]) -> None:
    from dlscale.analysis.predict import show
    from dlscale.analysis.render.text import as_data

    study = show.study_of(records)
    json.dump(as_data(study, [show.PREDICTION, show.ORIGINS]), sys.stdout)
    click.echo()
