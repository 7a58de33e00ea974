"""`dlscale report`: from records to a screen and a page."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.finding import checked
from dlscale.analysis.findings import cautions, compression, load_all, scaling, solution
from dlscale.analysis.load import Study
from dlscale.analysis.render import page, screen
from dlscale.analysis.render.text import as_data
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.options import choose_study, json_option, results_option, study_argument
from dlscale.benchmarks.cli.study_report import ended, load, predicted_option
from dlscale.benchmarks.records.record import BASES, Base
from dlscale.benchmarks.records.store import Store

PAGE = "report.html"


@click.command()
@study_argument
@results_option
@predicted_option
@click.option("--system", help="System of the study: a known name or a .toml file; default: any.")
@click.option(
    "--base",
    type=click.Choice(BASES),
    help="Base case of efficiencies: 1 rank, the ranks of one node, or the smallest number of ranks; default: 1 "
    "where the study has it, else the smallest.",
)
@json_option
@click.option("--full", is_flag=True, help="All tables: controls, start-up, energy, notes.")
def report(
    *,
    name: str | None,
    results: Path,
    predicted: list[str],
    system: str | None,
    base: Base | None,
    as_json: bool,
    full: bool,
) -> int:
    """Print one screen about STUDY from its records: a folder, or the beginning of its name (default: the latest).

    The screen has the verdict, the table of trainings, the largest loss of each backend, and warnings. The page with
    plots, causes of loss, failures and environment is written to report.html in the study's folder: one file that needs
    no network (docs/report.md). --predicted shows predictions next to the study: in tables, and in plots with bands and
    separate marks.

    Exit status: 2 if cases failed, records are corrupt or compressed trainings fail their accuracy gate, 4 if no number
    can carry an interval, or no training reached its target.

    \b
    Examples:
      dlscale report
      dlscale report --full
      dlscale report weak-scaling-1a2b3c4d --json
      dlscale report weak-scaling-1a2b3c4d --predicted latest
    """  # noqa: D301
    folder = choose_study(results, name, system=system)
    study = load(folder, base=base, named=predicted)
    if as_json:
        click.echo(json.dumps(as_data(study, checked(study, load_all()))))
    else:
        _show(study, folder, full=full)
    return _status(study)


def show_study(store: Store) -> int:
    """Print one screen about a study, draw its figures and its page, and print where; returns the exit status."""
    study = load(store.folder)
    _show(study, store.folder, is_drawn=True)
    return _status(study)


def _show(study: Study, folder: Path, *, full: bool = False, is_drawn: bool = False) -> None:
    """Print the screen and write the page. Raises UsageError if it cannot be written there."""
    from dlscale.benchmarks.cli.figures import draw_figures

    findings = checked(study, load_all())  # one that cannot be computed says so, and so does `study.errors`
    screen.show(study, findings, console=Console(), full=full)
    if is_drawn:
        draw_figures(study, findings, Store(folder).figures_folder)
    path, sections = folder / PAGE, page.sections_of(study, findings)
    page.write(path, title=study.title, facts=page.facts_of(study), sections=sections, origin=study.origin)
    click.echo(f"report: {path}\nopen: {path.resolve().as_uri()}")  # which terminals make a link of


def _status(study: Study) -> int:
    has_lacks = ended(study, enough=True)
    if has_lacks or len(cautions.failed_cases(study)) or compression.has_failed(study):
        return FAILED_CASES
    solved = solution.FINDING.of(study)
    if len(solved):
        return 0 if (solved["num_reached"] > 0).any() else INSUFFICIENT_DATA
    return 0 if scaling.FINDING.of(study)["samples_per_second_low"].notna().any() else INSUFFICIENT_DATA
