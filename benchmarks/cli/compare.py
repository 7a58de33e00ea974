"""`dlscale compare`: which of a study's backends is faster; or, may the numbers of two studies be compared?

Of one study it shows the declared comparisons and which of them may be claimed; of two, what differs between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group

from dlscale.analysis.findings.contrast_declaration import declare, declare_between, launches_of
from dlscale.analysis.findings.contrast_table import contrast_rows, contrasts_json, render_contrasts
from dlscale.analysis.findings.contrasts import Contrasts, contrasts
from dlscale.analysis.findings.outliers import outliers
from dlscale.analysis.findings.study_comparison import compare_studies as compare_records
from dlscale.analysis.findings.study_comparison import (
    compared_text,
    comparison_json,
    comparison_verdict,
    difference_table,
)
from dlscale.analysis.records import APART, latest_good
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.options import Counts, Words, choose_study, json_option, results_option
from dlscale.benchmarks.cli.study_report import order_of, parity_forbids, tell_left_out
from dlscale.benchmarks.records.files import BadFile, load_parity, load_records, read_record
from dlscale.benchmarks.records.record import Parity, Record


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
        click.echo(json.dumps({**comparison_json(comparison), "contrasts": optional_contrast_rows(found)}))
        return NOT_COMPARABLE if comparison.blocking else 0
    console = Console(highlight=False)
    console.print(compared_text(comparison), markup=False, soft_wrap=True)
    if comparison.differences:
        console.print(difference_table(comparison))
    if found:
        show_contrasts(found)
    console.print(comparison_verdict(comparison), markup=False, soft_wrap=True)
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
    found = read_record(Path(name))
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


def contrast_study(
    records: Sequence[Record],
    *,
    folder: Path | None,
    factor: Sequence[str],
    reference: str | None,
    ranks: Sequence[int],
    backends: Sequence[str],
    as_json: bool,
) -> int:
    """Print the comparisons inside one study; returns the exit status.

    `folder` is the study's, with the order in which it names things and the parity gate's verdicts; None for records
    from elsewhere. 3 if frameworks are compared whose networks the parity gate found to differ, 4 if nothing can be
    shown. Raises UsageError if there is nothing to compare.
    """
    if len(factor) > 1:
        raise UsageError(f"one factor at a time inside a study, not {', '.join(factor)}; give one --factor")
    records = [record for record in records if record.case.cell.control not in APART]
    declaration = declare(
        launches_of(records),
        factor=factor[0] if factor else None,
        reference=reference,
        order=order_of(folder) if folder else (),
        ranks=ranks,
        backends=backends,
    )
    parities = load_parity(folder) if folder else []
    forbidden = parity_forbids(parities)
    flagged = {(one.cell.id, one.evidence): one.blocks for one in outliers(latest_good(records))}
    found = contrasts(declaration, flagged=flagged, forbidden=forbidden)
    show_contrasts(found, as_json=as_json)
    if any(forbidden(pair) for pair in declaration.pairs) and not all(one.passed for one in parities):
        return NOT_COMPARABLE
    return 0 if found.shown else INSUFFICIENT_DATA


def contrast_studies(
    a: Sequence[Record], b: Sequence[Record], *, keys: Sequence[str], parities: Iterable[Parity] = ()
) -> Contrasts | None:
    """B's cells against A's, unpaired; None if they have no cell in common that gave a number."""
    declaration = declare_between(launches_of(a), launches_of(b), keys=keys)
    return contrasts(declaration, forbidden=parity_forbids(parities)) if declaration.pairs else None


def show_contrasts(found: Contrasts, *, as_json: bool = False) -> None:
    """Print them."""
    if as_json:
        click.echo(json.dumps(contrasts_json(found)))
    else:
        Console(highlight=False).print(Group(*render_contrasts(found)))


def optional_contrast_rows(found: Contrasts | None) -> list[dict[str, Any]]:
    """For `--json`, beside other rows."""
    return contrast_rows(found) if found else []
