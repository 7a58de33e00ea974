"""`dlscale compare`: may the numbers of two studies be held against each other?"""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.comparison.differences import compare as compare_records
from dlscale.analysis.comparison.text import compared, difference_table, to_json, verdict
from dlscale.benchmarks.cli import NOT_COMPARABLE
from dlscale.benchmarks.commands.options import Words, json_option, results_option
from dlscale.benchmarks.commands.studies import choose_study
from dlscale.benchmarks.record import Record
from dlscale.benchmarks.record_files import BadFile, load_records, read
from dlscale.models.errors import UsageError


@click.command()
@click.argument("a")
@click.argument("b")
@click.option(
    "--factor",
    type=Words(),
    help="Fields that are what is compared, for example backend,framework; default: whatever A or B vary inside.",
)
@results_option
@json_option
def compare(a: str, b: str, factor: list[str] | None, results: Path, as_json: bool) -> int:
    """Say in which fields of their records A and B differ, and whether that forbids comparing their numbers.

    A and B are studies, as `dlscale report` takes them, folders of studies, or single record files. Fields come in the
    order of their class: those that block a comparison, those that may be why numbers differ, and those that are good
    to know (docs/comparing.md).

    Exit status: 3 if A and B are not comparable.

    \b
    Examples:
      dlscale compare weak-scaling-1a2b3c4d weak-scaling-5e6f7a8b
      dlscale compare old/results/local/weak-scaling-1a2b3c4d weak-scaling --factor code,versions
    """  # noqa: D301
    comparison = compare_records(_records(a, results), _records(b, results), factors=factor)
    if as_json:
        click.echo(json.dumps(to_json(comparison)))
        return NOT_COMPARABLE if comparison.blocking else 0
    console = Console(highlight=False)
    console.print(compared(comparison), markup=False, soft_wrap=True)
    if comparison.differences:
        console.print(difference_table(comparison))
    console.print(verdict(comparison), markup=False, soft_wrap=True)
    return NOT_COMPARABLE if comparison.blocking else 0


def _records(name: str, results: Path) -> list[Record]:
    """The latest good record of every case in a study or file. Raises UsageError if there is none, or a bad one."""
    path = Path(name)
    if path.is_file():
        found = read(path)
        records, bad = ([found], []) if isinstance(found, Record) else ([], [found])
    else:
        records, bad = load_records(path if path.is_dir() else choose_study(results, name))
    if bad:
        raise UsageError(f"{name} cannot be compared: {_problem(bad)}")
    # Ascending attempts: the latest good one of a case is left.
    ordered = sorted(records, key=lambda record: record.attempt)
    good = {(record.study, record.case.id): record for record in ordered if record.good}
    if not good:
        raise UsageError(
            f"{name} has no good record ({len(records)} failed); run the study, or see: dlscale status"
        )
    return list(good.values())


def _problem(bad: list[BadFile]) -> str:
    rest = f" (and {len(bad) - 1} more such files)" if len(bad) > 1 else ""
    return f"{bad[0].path}: {bad[0].reason}{rest}"
