"""`dlscale compare`: which of a study's backends is faster; or, may the numbers of two studies be compared?"""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.comparison.differences import compare as compare_records
from dlscale.analysis.comparison.text import compared, difference_table, to_json, verdict
from dlscale.benchmarks.cli import FAILED_CASES, NOT_COMPARABLE
from dlscale.benchmarks.commands.contrast import contrast_studies, contrast_study, rows_of, show
from dlscale.benchmarks.commands.options import Counts, Words, json_option, results_option
from dlscale.benchmarks.commands.studies import choose_study
from dlscale.benchmarks.commands.study_report import tell_left_out
from dlscale.benchmarks.record import Record
from dlscale.benchmarks.record_files import BadFile, load_parity, load_records, read
from dlscale.models.errors import UsageError


@click.command()
@click.argument("a")
@click.argument("b", required=False)
@click.option(
    "--factor",
    type=Words(),
    help="What is compared, for example backend,framework. Default: whatever A or B vary inside; in one study the "
    "backend, or the framework where there is only one backend.",
)
@click.option(
    "--reference", help="In one study: what all others are held against (default: the first backend)."
)
@click.option("--ranks", type=Counts(), help="In one study: compare only on so many ranks.")
@click.option("--backends", type=Words(), help="In one study: compare only these with the reference.")
@results_option
@json_option
def compare(
    a: str,
    b: str | None,
    factor: list[str] | None,
    reference: str | None,
    ranks: list[int] | None,
    backends: list[str] | None,
    results: Path,
    as_json: bool,
) -> int:
    """Test what is faster inside study A; or say in which fields of their records A and B differ.

    Of one study, each backend is compared with one of them on each number of ranks above 1, by paired blocks, with a
    correction for the number of comparisons (docs/contrasts.md). The fewer are asked for, the fewer blocks they need.

    A and B are studies, as `dlscale report` takes them, folders of studies, or single record files. Fields come in the
    order of their class: those that block a comparison, those that may be why numbers differ, and those that are good
    to know (docs/comparing.md). Throughputs follow if they may be compared; they are unpaired, and nothing is claimed
    of them.

    Exit status: 2 if records of the one study are corrupt and were left out, 3 if what is asked for is not comparable,
    4 if nothing can be shown of any comparison inside a study.

    \b
    Examples:
      dlscale compare weak-scaling --reference ring
      dlscale compare weak-scaling --factor framework --ranks 8
      dlscale compare weak-scaling-1a2b3c4d weak-scaling-5e6f7a8b
      dlscale compare old/results/local/weak-scaling-1a2b3c4d weak-scaling --factor code,versions
    """  # noqa: D301
    if b is None:
        records, bad = _found(a, results)
        status = contrast_study(
            records,
            folder=_folder(a, results),
            factor=factor or (),
            reference=reference,
            ranks=ranks or (),
            backends=backends or (),
            as_json=as_json,
        )
        tell_left_out(bad)
        return FAILED_CASES if bad else status
    if reference or ranks or backends:
        raise UsageError(
            "--reference, --ranks and --backends choose inside one study; give no second one with them"
        )
    sides = [_good(name, _records(name, results)) for name in (a, b)]
    comparison = compare_records(*sides, factors=factor)
    found = None
    if not comparison.blocking:
        folders = [_folder(name, results) for name in (a, b)]
        parities = [one for folder in folders if folder for one in load_parity(folder)]
        found = contrast_studies(*sides, keys=comparison.keys, parities=parities)
    if as_json:
        click.echo(json.dumps({**to_json(comparison), "contrasts": rows_of(found)}))
        return NOT_COMPARABLE if comparison.blocking else 0
    console = Console(highlight=False)
    console.print(compared(comparison), markup=False, soft_wrap=True)
    if comparison.differences:
        console.print(difference_table(comparison))
    if found:
        show(found)
    console.print(verdict(comparison), markup=False, soft_wrap=True)
    return NOT_COMPARABLE if comparison.blocking else 0


def _folder(name: str, results: Path) -> Path | None:
    """Of the study; None for a single record."""
    path = Path(name)
    if path.is_file():
        return None
    return path if path.is_dir() else choose_study(results, name)


def _records(name: str, results: Path) -> list[Record]:
    """All attempts in a study or file. Raises UsageError if one is unsound: what differs may be in it."""
    records, bad = _found(name, results)
    if bad:
        raise UsageError(f"{name} cannot be compared: {_problem(bad)}")
    return records


def _found(name: str, results: Path) -> tuple[list[Record], list[BadFile]]:
    """All attempts in a study or file, and the files that are unsound."""
    folder = _folder(name, results)
    if folder is not None:
        return load_records(folder)
    found = read(Path(name))
    return ([found], []) if isinstance(found, Record) else ([], [found])


def _good(name: str, records: list[Record]) -> list[Record]:
    """The latest good record of every case. Raises UsageError if there is none."""
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
