"""`dlscale report` of a rehearsal: its predictions, and their page."""

from __future__ import annotations

import json
from pathlib import Path

import click
from pydantic import Field
from rich.console import Console

from dlscale.analysis.predict.page import rehearsal_page
from dlscale.analysis.predict.render import assumption_line, first_line, prediction_table
from dlscale.analysis.records import prediction_row
from dlscale.analysis.render.grid import render_table
from dlscale.base.definitions import Frozen, read_json
from dlscale.base.strings import Text
from dlscale.benchmarks.cli.browser import open_page
from dlscale.benchmarks.cli.study_report import PAGE, put
from dlscale.benchmarks.jobs.submission import REHEARSAL_FILE
from dlscale.benchmarks.records.prediction import ENDING, PredictionRecord, read_predictions
from dlscale.benchmarks.systems.system import load_system

FIGURES = "figures"  # beside which predictions are


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
    if name is not None and (Path(name) / REHEARSAL_FILE).is_file():
        return Path(name)
    place = load_system(system).name if system else "*"
    files = sorted(results.glob(f"{place}/*/{REHEARSAL_FILE}"), key=lambda path: path.stat().st_mtime)
    return next((path.parent for path in reversed(files) if path.parent.name.startswith(name or "")), None)


def report_rehearsal(folder: Path, *, as_json: bool, in_browser: bool) -> int:
    """Print what a rehearsal predicts and write its page; returns the exit status."""
    trainings = predictions_in(folder)
    if as_json:
        rows = [prediction_row(record) for records in trainings for record in records]
        click.echo(json.dumps({"schema": 1, "rows": rows}))
        return 0
    click.echo(f"rehearsal: nothing was measured on {folder.resolve().parent.name}")
    for records in trainings:
        console = Console(highlight=False)
        console.print(first_line(records[0]), markup=False, soft_wrap=True)
        console.print(*render_table(prediction_table(records)), sep="\n")
        console.print(*filter(None, [assumption_line(records)]), markup=False, soft_wrap=True)
    put_rehearsal(folder)
    if in_browser and (folder / PAGE).is_file():
        open_page(folder / PAGE)
    return 0


def put_rehearsal(folder: Path) -> None:
    """Write the page of the rehearsal in `folder`, and print where it is."""
    facts = read_json(RehearsalFacts, folder / REHEARSAL_FILE, remedy="rehearse again")
    page = rehearsal_page(
        [record for records in predictions_in(folder) for record in records],
        [job.model_dump() for job in facts.jobs],
        system=folder.resolve().parent.name,
        name=folder.resolve().name,
        command=facts.command,
    )
    put(page, folder)


def predictions_in(folder: Path) -> list[list[PredictionRecord]]:
    """The predictions of each training of a rehearsal."""
    return [read_predictions(path) for path in sorted((folder / FIGURES).glob(f"*{ENDING}"))]
