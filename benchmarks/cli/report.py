"""`dlscale report`: from records to a screen and a page."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.findings import cautions, compression, scaling, solution
from dlscale.analysis.load import Study
from dlscale.analysis.render import screen
from dlscale.analysis.render.text import as_data
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.options import json_option
from dlscale.benchmarks.cli.show_predictions import rehearsed_folder, report_rehearsal, show_records
from dlscale.benchmarks.cli.study_report import (
    PAGE,
    ChosenStudy,
    based_study_options,
    findings_of,
    load,
    open_page,
    put,
)
from dlscale.benchmarks.records.prediction import ENDING, read_predictions
from dlscale.benchmarks.records.store import Store, uncollected


@click.command()
@based_study_options
@json_option
@click.option("--full", is_flag=True, help="All tables: controls, start-up, energy, notes.")
@click.option("--open", "in_browser", is_flag=True, help="Open the page in the browser, or print its link.")
def report(*, chosen: ChosenStudy, as_json: bool, full: bool, in_browser: bool) -> int:
    """Print one screen about STUDY from its records: a folder, or the beginning of its name (default: the latest).

    The screen has the verdict, the table of trainings, the largest loss of each backend, and warnings. The page with
    plots, causes of loss, failures and environment is written to report.html in the study's folder: one file that needs
    no network (docs/report.md).

    Where there are only rehearsals, or STUDY is one, its predictions are printed and its page is written. A file of
    dlscale predict, *.jsonl, is printed again. --predicted shows predictions next to the study: in tables, and in
    plots with bands and separate marks.

    Exit status: 2 if cases failed, records are corrupt or compressed trainings fail their accuracy gate, 4 if no number
    can carry an interval, or no training reached its target.

    \b
    Examples:
      dlscale report
      dlscale report --full
      dlscale report weak-scaling-1a2b3c4d --json
      dlscale report weak-scaling-1a2b3c4d --predicted latest
      dlscale report results/cori/predictions/hep_cnn-paper-tensorflow-weak-scaling.jsonl
    """  # noqa: D301
    name = chosen.name
    if as_json and in_browser:
        raise UsageError("--open and --json are mutually exclusive")
    if name and name.endswith(ENDING):
        if full or chosen.predicted or in_browser:
            raise UsageError(f"{name} is a prediction, which --full, --predicted and --open are not for")
        show_records(read_predictions(Path(name)), as_json=as_json)
        return 0
    try:
        folder = chosen.folder
    except UsageError:  # there is no such study
        rehearsed = rehearsed_folder(chosen.results, name, system=chosen.system)
        if rehearsed is None:
            raise
        if full or chosen.predicted:
            raise UsageError(
                f"{rehearsed} is a rehearsal, which --full and --predicted are not for"
            ) from None
        report_rehearsal(rehearsed, as_json=as_json, in_browser=in_browser)
        return 0
    with uncollected():
        study = load(folder, base=chosen.base, named=chosen.predicted)
        findings = findings_of(study)
        if as_json:
            click.echo(json.dumps(as_data(study, findings)))
        else:
            screen.show(study, findings, console=Console(), full=full)
            put(study, findings, folder)
    if in_browser and (folder / PAGE).is_file():
        open_page(folder / PAGE)
    return _status(study)


def show_study(store: Store) -> int:
    """Print one screen about a study, draw its figures and its page, and print where; returns the exit status."""
    from dlscale.benchmarks.cli.figures import draw_figures

    with uncollected():
        study = load(store.folder)
        findings = findings_of(study)
        screen.show(study, findings, console=Console())
        draw_figures(study, findings, store.figures_folder)
        put(study, findings, store.folder, link=True)
    return _status(study)


def _status(study: Study) -> int:
    for sentence in study.errors:
        click.echo(f"warning: {sentence}", err=True)
    has_failed = len(cautions.failed_cases(study)) or compression.has_failed(study)
    if study.bad_files or study.left_out or study.errors or has_failed:
        return FAILED_CASES
    solved = solution.FINDING.of(study)
    if len(solved):
        return 0 if (solved["num_reached"] > 0).any() else INSUFFICIENT_DATA
    return 0 if scaling.FINDING.of(study)["samples_per_second_low"].notna().any() else INSUFFICIENT_DATA
