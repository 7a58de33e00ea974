"""Predictions printed and written: of `dlscale predict`, of a file of them, and of a rehearsal with its page."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.predict.prediction import PredictedCurve, prediction_records
from dlscale.base.definitions import Frozen, read_json
from dlscale.base.strings import Text
from dlscale.benchmarks.records.prediction import ENDING, PredictionRecord, read_predictions
from dlscale.benchmarks.systems.system import load_system

FIGURES, PAGE = "figures", "report.html"  # of a rehearsal


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
    jobs: tuple[JobFacts, ...] = ()


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

    facts = {"commit": probe.commit() if commit is None else commit, "command": command}
    made = [list(prediction_records(curves, **facts)) for curves in trainings if curves]
    if as_json:
        show_records([record for records in made for record in records], as_json=True)
        return
    for records in made:
        show_records(records)
        stem = stem_of(records[0])
        show.write(show.study_of(records), stem)
        click.echo(f"figure, CSV and records: {stem}.png, {stem.name}.csv, {stem.name}{ENDING}")


def show_records(records: Sequence[PredictionRecord], *, as_json: bool = False) -> None:
    """Print predictions."""
    from dlscale.analysis.predict import show
    from dlscale.analysis.render.text import as_data

    study = show.study_of(records)
    if as_json:
        click.echo(json.dumps(as_data(study, [show.PREDICTION, show.ORIGINS])))
    else:
        show.show(study, Console(highlight=False))


def rehearsed_folder(results: Path, name: str | None, *, system: str | None = None) -> Path | None:
    """The folder of that path, or of the latest rehearsal whose name begins so, on that system; None without one."""
    from dlscale.benchmarks.jobs.submission import REHEARSAL_FILE  # with all that jobs need

    if name is not None and (Path(name) / REHEARSAL_FILE).is_file():
        return Path(name)
    place = load_system(system).name if system else "*"
    files = sorted(results.glob(f"{place}/*/{REHEARSAL_FILE}"), key=lambda path: path.stat().st_mtime)
    return next((path.parent for path in reversed(files) if path.parent.name.startswith(name or "")), None)


def report_rehearsal(folder: Path, *, as_json: bool, in_browser: bool) -> None:
    """Print what a rehearsal predicts, write its page, and open it if asked."""
    from dlscale.benchmarks.cli.study_report import open_page

    if not as_json:
        click.echo(f"rehearsal: nothing was measured on {folder.resolve().parent.name}")
    show_records(_predictions_in(folder), as_json=as_json)
    if not as_json:
        put_rehearsal(folder)
    if in_browser and (folder / PAGE).is_file():
        open_page(folder / PAGE)


def put_rehearsal(folder: Path) -> None:
    """Write the page of the rehearsal in `folder`, and print where it is."""
    from dlscale.analysis.predict import show
    from dlscale.benchmarks.jobs.submission import REHEARSAL_FILE

    facts = read_json(RehearsalFacts, folder / REHEARSAL_FILE, remedy="rehearse again")
    name, system = folder.resolve().name, folder.resolve().parent.name
    show.write_page(
        show.study_of(_predictions_in(folder)),
        folder / PAGE,
        name=system,
        facts={"Rehearsal": name, "To measure it": f"{facts.command} (on {system})"},
        more=[show.jobs([job.model_dump() for job in facts.jobs])],
    )
    click.echo(f"report: {folder / PAGE}")


def _predictions_in(folder: Path) -> list[PredictionRecord]:
    files = sorted((folder / FIGURES).glob(f"*{ENDING}"))
    return [record for path in files for record in read_predictions(path)]
