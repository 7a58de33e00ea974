"""`dlscale report` and `dlscale figures`: from records to numbers and pictures."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis import efficiency
from dlscale.analysis.figures.write import write_figures
from dlscale.analysis.render import terminal_report as text_report
from dlscale.analysis.render.terminal_table import render_scaling
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.options import choose_study, json_option, results_option
from dlscale.benchmarks.cli.published import draw_published, on_option
from dlscale.benchmarks.cli.study_report import Loaded, load, put, tell_left_out
from dlscale.benchmarks.records.files import uncollected
from dlscale.benchmarks.records.store import Store


@click.command()
@click.argument("study", required=False)
@results_option
@json_option
@click.option("--text", "as_text", is_flag=True, help="Print plots in characters, and the 12 rules, as well.")
def report(study: str | None, results: Path, as_json: bool, as_text: bool) -> int:
    """Print the table of STUDY (the beginning of a folder's name; default: the latest) from its records.

    The page with plots, causes of loss, failures and environment is written to report.html in the study's folder: one
    file that needs no network (docs/report.md). With --text the plots are printed, too, for those who are in ssh. Below
    the table stand the lines of code that each backend asks of a training script (docs/productivity.md).

    Exit status: 2 if cases failed or records are corrupt, 3 if the parity gate found that a workload's networks
    differ between the frameworks, 4 if no number can carry an interval.

    \b
    Examples:
      dlscale report
      dlscale report --text
      dlscale report weak-scaling-1a2b3c4d --json
    """  # noqa: D301
    store = Store(choose_study(results, study))
    running = store.busy
    with uncollected():
        return _show(load(store), as_json=as_json, as_text=as_text, running=running)


@click.command()
@click.argument("study", required=False)
@click.option(
    "--published",
    is_flag=True,
    help="Draw published figures instead; STUDY is one of these then (default: all).",
)
@on_option
@results_option
def figures(study: str | None, published: bool, on: str | None, results: Path) -> int:
    """Draw the figures of STUDY (default: the latest) from its records alone, as PNG, PDF, SVG, and CSV.

    With --published, draw published figures in their own layout, with those of our series that are the same thing
    beside them (docs/published-figures.md).

    Exit status: 2 if records are corrupt or were left out, 4 if no figure can be drawn.

    \b
    Examples:
      dlscale figures weak-scaling
      dlscale figures --published
      dlscale figures --published powerai-ddl-2 --on my-cluster
    """  # noqa: D301
    if published:
        return draw_published(results, names=[study] if study else [], on=on)
    if on:
        raise UsageError(f"--on {on} stands in for a publication's machine; give it with --published")
    store = Store(choose_study(results, study))
    with uncollected():
        found = load(store)
        drawn = _draw(found, store)
    tell_left_out(found.bad_files, found.left_out)
    if found.bad_files or found.left_out:
        return FAILED_CASES
    return 0 if drawn else INSUFFICIENT_DATA


def show_study(store: Store) -> int:
    """Print a study's table, draw its figures and its page, and say where they are; returns the exit status."""
    with uncollected():
        found = load(store)
        status = _show(found, with_page=False)
        _draw(found, store)  # first: where the disk is full, one complaint is enough
        put(found.page(), found.folder)
    return status


def _show(
    found: Loaded,
    *,
    as_json: bool = False,
    as_text: bool = False,
    running: bool = False,
    with_page: bool = True,
) -> int:
    table, bad_files = found.table, found.bad_files
    if as_json:
        click.echo(json.dumps(efficiency.scaling_json(table)))
    else:
        page = found.page(running=running) if as_text or with_page else None
        shown = (
            text_report.render_report(page, table, bad_files=bad_files)
            if page and as_text
            else render_scaling(table, bad_files=bad_files)
        )
        Console().print(shown)
        for sentence in found.left_out:
            click.echo(f"left out: {sentence}")
        if page:
            put(page, found.folder)
    if bad_files or found.left_out or table.failures:
        return FAILED_CASES
    if any(row.pair and row.pair.comparable is False for row in table.rows):
        return NOT_COMPARABLE
    intervals = [row.throughput for row in table.rows if row.throughput]
    return 0 if any(interval.low is not None for interval in intervals) else INSUFFICIENT_DATA


def _draw(found: Loaded, store: Store) -> int:
    """The number of figures, which is told."""
    written = write_figures(found.table, store.figures_folder)
    drawn = sum(path.suffix == ".png" for path in written)
    click.echo(
        f"figures: {drawn} in {store.figures_folder}" if drawn else "no figures: no training has a number"
    )
    return drawn
