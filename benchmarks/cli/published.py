"""`dlscale verify-figures` and `dlscale figures --published`: published figures, and our own series beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.efficiency import ScalingTable, scaling_table
from dlscale.analysis.published.catalogue import load_published
from dlscale.analysis.published.figures import write_figures
from dlscale.analysis.published.values import FOLDER
from dlscale.analysis.published.verdicts import render_verdicts, to_json
from dlscale.analysis.published.verify import Check, verify
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.options import json_option, results_option
from dlscale.benchmarks.records.files import load_records

DRAWN = "published-figures"  # the folder of what is drawn, in the results folder

on_option = click.option(
    "--on",
    metavar="SYSTEM",
    help="Take our records of that system where a publication's own machine is asked for.",
)
published_option = click.option(
    "--published-data",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default="results/published of the checkout",
    help="Folder of the published values.",
)


@click.command("verify-figures")
@click.argument("names", metavar="[FIGURE]...", nargs=-1)
@results_option
@published_option
@on_option
@json_option
def verify_figures(names: Sequence[str], results: Path, folder: Path, on: str | None, as_json: bool) -> int:
    """Compare our records with published figures (default: all), and published values with each other.

    Our records are those of every study in the results folder. A published number is compared with a cell of ours that
    is the same thing on as many devices; whatever cannot be compared is unknown, and never passes
    (docs/published-figures.md).

    Exit status: 2 if a number of ours or two published ones disagree, 4 if nothing was compared in a figure that was
    asked for, or more launches are needed to tell.

    \b
    Examples:
      dlscale verify-figures
      dlscale verify-figures powerai-ddl-2 cosmogan-edison --json
      dlscale verify-figures tf-cnn-p100 --on my-dgx
    """  # noqa: D301
    published = load_published(folder)
    for name in names:
        published.figure(name)  # a misspelt name is reported before any record is read
    tables = _tables(results)
    checks = verify(published, names=names, tables=tables, stand_in=on)
    if as_json:
        click.echo(json.dumps(to_json(checks)))
    else:
        Console().print(render_verdicts(checks))
    return _status(checks)


def _status(checks: Sequence[Check]) -> int:
    if any(check.disagrees for check in checks):
        return FAILED_CASES
    return 0 if all(check.passes for check in checks) else INSUFFICIENT_DATA


def draw_published(
    results: Path, *, names: Sequence[str] = (), on: str | None = None, folder: Path = FOLDER
) -> int:
    """Draw published figures, by default all, into the results folder and say where; returns the exit status."""
    published = load_published(folder)
    written = write_figures(published, results / DRAWN, names=names, tables=_tables(results), stand_in=on)
    click.echo(f"published figures: {sum(path.suffix == '.png' for path in written)} in {results / DRAWN}")
    return 0


def _tables(results: Path) -> list[ScalingTable]:
    """The table of every study in the results folder, by name; those that give none are reported and left out."""
    tables = []
    for path in sorted(results.glob("*/*/study.json")):
        study = path.parent
        try:
            records, bad = load_records(study)
            tables.append(scaling_table(records))
        except UsageError as error:
            click.echo(f"left out: study {study.name}: {error}", err=True)
            continue
        if bad:
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            click.echo(f"left out: {bad[0].path}{more}: {bad[0].reason}", err=True)
    return tables
