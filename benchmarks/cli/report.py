"""`dlscale report`: from records to a screen and a page."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.findings import compression, solution_table
from dlscale.analysis.findings.compression import FAILED
from dlscale.analysis.findings.failures import failed_cases
from dlscale.analysis.render.data import study_json
from dlscale.analysis.render.screen import render_full, render_screen
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.browser import open_page
from dlscale.benchmarks.cli.options import (
    base_option,
    choose_study,
    json_option,
    results_option,
    system_option,
)
from dlscale.benchmarks.cli.predicted import predicted_option, with_predictions
from dlscale.benchmarks.cli.show_predictions import rehearsed_folder, report_prediction, report_rehearsal
from dlscale.benchmarks.cli.study_report import PAGE, Loaded, load, put
from dlscale.benchmarks.records.files import uncollected
from dlscale.benchmarks.records.prediction import ENDING
from dlscale.benchmarks.records.record import Base
from dlscale.benchmarks.records.store import Store


@click.command()
@click.argument("study", required=False)
@system_option
@base_option
@predicted_option
@results_option
@json_option
@click.option("--full", is_flag=True, help="All tables: controls, start-up, energy, notes.")
@click.option("--open", "in_browser", is_flag=True, help="Open the page in the browser, or print its link.")
def report(
    study: str | None,
    system: str | None,
    base: Base | None,
    predicted: list[str],
    results: Path,
    as_json: bool,
    full: bool,
    in_browser: bool,
) -> int:
    """Print one screen about STUDY from its records: a folder, or the beginning of its name (default: the latest).

    The screen has the verdict, the table of trainings, the largest loss of each backend, and warnings. With --full
    all tables are printed. The page with plots, causes of loss, failures and environment
    is written to report.html in the study's folder: one file that needs no network (docs/report.md).

    Where there are only rehearsals, or STUDY is one, its predictions are printed and its page is written.

    A file of dlscale predict, *.jsonl, is printed again.

    --predicted shows what dlscale predict expects beside it, with bands, in tables and plots of their own marks.

    Exit status: 2 if cases failed, records are corrupt or compressed trainings fail their accuracy gate, 4 if no number
    can carry an interval, or no training reached its target.

    \b
    Examples:
      dlscale report
      dlscale report --full
      dlscale report --open
      dlscale report weak-scaling-1a2b3c4d --json
      dlscale report weak-scaling-1a2b3c4d --predicted latest
      dlscale report results/cori/predictions/hep_cnn-paper-tensorflow-weak-scaling.jsonl
    """  # noqa: D301
    if as_json and in_browser:
        raise UsageError("--open and --json are mutually exclusive")
    if study and study.endswith(ENDING):
        if full or predicted or in_browser:
            raise UsageError(f"{study} is a prediction, which --full, --predicted and --open are not for")
        return report_prediction(Path(study), as_json=as_json)
    try:
        store = Store(choose_study(results, study, system=system))
    except UsageError:  # there is no such study
        rehearsed = rehearsed_folder(results, study, system=system)
        if rehearsed is None:
            raise
        if full or predicted:
            raise UsageError(
                f"{rehearsed} is a rehearsal, which --full and --predicted are not for"
            ) from None
        return report_rehearsal(rehearsed, as_json=as_json, in_browser=in_browser)
    with uncollected():
        loaded = with_predictions(load(store, base=base, running=store.busy), predicted)
        status = _show(loaded, as_json=as_json, full=full)
    if in_browser and (loaded.folder / PAGE).is_file():
        open_page(loaded.folder / PAGE)
    return status


def show_study(store: Store) -> int:
    """Print one screen about a study, draw its figures and its page, and print where; returns the exit status."""
    with uncollected():
        loaded = load(store)
        Console().print(render_screen(loaded.study, loaded.found))
        if loaded.errors:  # figures rest on findings, too
            click.echo("no figures: not all findings could be computed", err=True)
        else:  # first: where the disk is full, one complaint is enough
            from dlscale.benchmarks.cli.figures import draw_figures

            draw_figures(loaded, store.figures_folder)
        put(loaded.page(), loaded.folder, link=True)
    return _status(loaded)


def _show(loaded: Loaded, *, as_json: bool, full: bool) -> int:
    if as_json:
        click.echo(json.dumps(study_json(loaded.found)))
        return _status(loaded)
    page = loaded.page()
    if full:
        Console().print(render_full(loaded.study, loaded.found))
    else:
        Console().print(render_screen(loaded.study, loaded.found))
    put(page, loaded.folder)
    return _status(loaded)


def _status(loaded: Loaded) -> int:
    study = loaded.study
    failed = failed_cases(study)
    if study.bad_files or study.left_out or failed or loaded.errors:
        return FAILED_CASES
    if any(cell.gate == FAILED for cell in compression.FINDING.of(study)):
        return FAILED_CASES
    if solutions := solution_table.FINDING.of(study):
        return 0 if any(row.num_reached for row in solutions) else INSUFFICIENT_DATA
    intervals = [row.throughput for row in loaded.rows if row.throughput]
    return 0 if any(interval.low is not None for interval in intervals) else INSUFFICIENT_DATA
