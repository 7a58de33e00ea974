"""`dlscale report` and `dlscale figures`: from records to numbers and pictures."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis import rows
from dlscale.analysis.figures import write_figures
from dlscale.analysis.scaling import ScalingTable, scaling_table
from dlscale.analysis.table import render
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.commands.options import json_option, results_option
from dlscale.benchmarks.commands.published import draw_published, on_option
from dlscale.benchmarks.commands.studies import choose_study
from dlscale.benchmarks.record_files import BadFile, load_parity, load_records
from dlscale.benchmarks.store import Store
from dlscale.models.errors import UsageError


@click.command()
@click.argument("study", required=False)
@results_option
@json_option
def report(study: str | None, results: Path, as_json: bool) -> int:
    """Print the table of STUDY (the beginning of a folder's name; default: the latest) from its records.

    Below it stand the lines of code that each of its backends asks of a training script (docs/productivity.md).

    Exit status: 2 if cases failed or records are corrupt, 3 if the parity gate found that a workload's networks
    differ between the frameworks, 4 if no number can carry an interval.

    \b
    Examples:
      dlscale report
      dlscale report weak-scaling-1a2b3c4d --json
    """  # noqa: D301
    return _show(Store(choose_study(results, study)), as_json=as_json)


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
    """Draw the figures of STUDY (default: the latest) from its records alone.

    With --published, draw published figures in their own layout, with those of our series that are the same thing
    beside them (docs/published-figures.md).

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
    click.echo(f"figures: {_draw(store)}")
    return 0


def show_study(store: Store) -> int:
    """Print a study's table, draw its figures, and say where they are; returns the exit status."""
    status = _show(store, as_json=False)
    click.echo(f"figures: {_draw(store)}")
    return status


def _show(store: Store, *, as_json: bool) -> int:
    table, bad_files = _table(store)
    if as_json:
        click.echo(json.dumps(rows.to_json(table)))
    else:
        Console().print(render(table, bad_files=bad_files))
    if bad_files or table.failures:
        return FAILED_CASES
    if any(row.pair and row.pair.comparable is False for row in table.rows):
        return NOT_COMPARABLE
    intervals = [row.throughput for row in table.rows if row.throughput]
    return 0 if any(interval.low is not None for interval in intervals) else INSUFFICIENT_DATA


def _draw(store: Store) -> Path:
    table, _ = _table(store)
    write_figures(table, store.figures_folder)
    return store.figures_folder


def _table(store: Store) -> tuple[ScalingTable, list[BadFile]]:
    records, bad_files = load_records(store.folder)
    table = scaling_table(records, planned=store.planned(), parities=load_parity(store.folder))
    return table, bad_files
