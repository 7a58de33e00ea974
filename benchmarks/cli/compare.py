"""`dlscale compare`: which backend of a study is faster, what differs between two, or the newest of several.

With one study it shows the declared comparisons and which of them are significant; with two, the fields that differ,
and their throughputs if they may be compared; with more, the newest next to the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from dlscale.analysis.compare import (
    between,
    compare_studies,
    compared_text,
    comparison_verdict,
    difference_table,
    good_records,
    pairs_between,
    with_earlier,
)
from dlscale.analysis.declaration import declared
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import cautions, comparison
from dlscale.analysis.load import Study
from dlscale.analysis.render import screen
from dlscale.analysis.render.text import as_data, rows_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.option_kinds import Backends, Counts, Words
from dlscale.benchmarks.cli.options import choose_study, json_option, results_option
from dlscale.benchmarks.cli.predicted import compare_predicted, predicted_option
from dlscale.benchmarks.cli.stated_study import study_in
from dlscale.benchmarks.cli.study_report import tell_left_out
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.store import load_records, read_record


@click.command()
@click.argument("names", metavar="A [B]...", nargs=-1, required=True)
@click.option(
    "--by",
    "factor",
    type=Words(),
    help="Fields to compare by, e.g. backend,framework. Default: for two studies the fields that vary within A or B; "
    "for one the backend, or the framework if there is only one backend.",
)
@click.option(
    "--reference",
    help="Reference that all others are compared with, in one study; default: the first backend.",
)
@click.option(
    "--ranks", type=Counts(), help="Numbers of ranks to compare, in one study; default: all above 1."
)
@click.option("--backends", type=Backends(), help="Backends to compare with the reference, in one study.")
@predicted_option
@results_option
@json_option
def compare(
    names: tuple[str, ...],
    factor: list[str] | None,
    reference: str | None,
    ranks: list[int] | None,
    backends: list[str] | None,
    predicted: list[str],
    results: Path,
    as_json: bool,
) -> int:
    """Test which backend of study A is faster, show how A and B differ, or the newest of several next to the others.

    With one study, each backend is compared with the reference on each number of ranks above 1, by paired blocks and
    corrected for the number of comparisons (docs/metrics.md). Fewer comparisons need fewer blocks.

    A and B are names of studies, as in `dlscale report`, folders of studies, or single record files. Fields are sorted
    by class: those that forbid a comparison, those that may explain a difference, and those for information
    (docs/report.md). Throughputs follow if they may be compared; they are unpaired and support no claim.

    Of more studies the newest is shown next to the others: each training's throughput, the median and the range of
    theirs, and whether it is outside that range.

    With --predicted, predictions are compared with what study A measured: the error of each size, and whether it is
    inside the band (docs/prediction.md).

    Exit status: 2 if corrupt records of study A were left out, 3 if what is asked for is not comparable, 4 if no
    comparison inside a study is significant, or no predicted size was measured.

    \b
    Examples:
      dlscale compare weak-scaling --reference ring
      dlscale compare frameworks --by framework
      dlscale compare weak-scaling --predicted latest
      dlscale compare weak-scaling-1a2b3c4d weak-scaling-5e6f7a8b
      dlscale compare nightly/*/local/weak-scaling-*
      dlscale compare old/results/local/weak-scaling-1a2b3c4d weak-scaling --by code,versions
    """  # noqa: D301
    a, *others = names
    if predicted:
        folder = folder_of(a, results)
        if others or factor or reference or ranks or backends or folder is None:
            raise UsageError(
                "--predicted is compared with the numbers of one study; leave out --by, --reference, --ranks, "
                "--backends, records and a second study"
            )
        return compare_predicted(folder, predicted, as_json=as_json)
    if not others:
        study = loaded(a, results)
        if factor and len(factor) > 1:
            raise UsageError(f"--by {','.join(factor)} inside one study; give a single factor")
        status = compare_one(
            study,
            factor=factor[0] if factor else None,
            reference=reference,
            ranks=ranks or (),
            backends=backends or (),
            as_json=as_json,
        )
        tell_left_out(study.bad_files, study.left_out)
        return FAILED_CASES if study.bad_files else status
    if reference or ranks or backends:
        raise UsageError(
            f"--reference, --ranks and --backends apply to one study, but {len(names)} were given; leave them out"
        )
    studies = [_whole(name, results) for name in names]
    if len(studies) == 2:
        return compare_two(*studies, factor=factor, as_json=as_json)
    return compare_several(studies, factor=factor, as_json=as_json)


def compare_one(study: Study, *, as_json: bool, **declaration: Any) -> int:
    """Print the comparisons inside one study; returns the exit status.

    Status 4 if no comparison is significant. Raises UsageError if there is nothing to compare.
    """
    pairs, left_out = declared(study, **declaration)
    finding = replace(comparison.FINDING, compute=lambda study: comparison.tested(study, pairs))
    _put(study, finding, left_out, as_json=as_json)
    return 0 if (finding.of(study)["verdict"] != "cannot be shown").any() else INSUFFICIENT_DATA


def compare_two(a: Study, b: Study, *, factor: Sequence[str] | None, as_json: bool) -> int:
    """Print what differs between two studies, and their throughputs if they may be compared."""
    found = compare_studies(good_records(a), good_records(b), factors=factor)
    is_blocked = len(found.blocking) > 0
    pairs, left_out = pairs_between(a, b, found.keys)
    finding = between(a, pairs.head(0) if is_blocked else pairs)
    status = NOT_COMPARABLE if is_blocked else 0
    if as_json:
        facts = {**found._asdict(), "comparable": not is_blocked}
        columns = ["field", "factor", "title", "class", "blocks", "a", "b", "num_points"]
        facts["differences"] = rows_of(found.differences[columns])
        _put(b, finding, left_out, as_json=True, facts=facts)
        return status
    console = Console(highlight=False)
    console.print(compared_text(found), markup=False, soft_wrap=True)
    if len(found.differences):
        console.print(screen.grid(difference_table(found.differences), folded=True))
    for text in cautions.texts(a):
        console.print(f"A: {text}", markup=False)
    if not is_blocked and len(pairs):
        _put(b, finding, left_out, as_json=False)
    console.print(comparison_verdict(found), markup=False, soft_wrap=True)
    return status


def compare_several(studies: Sequence[Study], *, factor: Sequence[str] | None, as_json: bool) -> int:
    """Print the newest study's throughputs next to those of the others; returns the exit status.

    Status 3 if one of them may not be compared with it, 4 if they have no training in common.
    """
    *earlier, newest = sorted(studies, key=lambda study: study.good["started"].min())
    records = good_records(newest)
    for other in earlier:
        found = compare_studies(good_records(other), records, factors=factor)
        if len(found.blocking):
            names = ", ".join(
                f"{side}: {one.good['study'].iloc[0]}" for side, one in (("A", other), ("B", newest))
            )
            click.echo(f"{names}: {comparison_verdict(found)}", err=True)
            return NOT_COMPARABLE
    finding, name = with_earlier(earlier), str(newest.good["study"].iloc[0])
    num_rows = len(finding.of(newest))
    if as_json or num_rows:
        _put(newest, finding, (), as_json=as_json, facts={"study": name})
    else:
        click.echo(f"{name} has no training in common with the others", err=True)
    return 0 if num_rows else INSUFFICIENT_DATA


def _put(
    study: Study,
    finding: Finding,
    left_out: Sequence[str],
    *,
    as_json: bool,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Print a finding with the study's cautions, and what was left out of it; `facts` are in JSON only."""
    shown = [cautions.FINDING, finding]
    if as_json:
        click.echo(json.dumps({**(facts or {}), **as_data(study, shown), "left_out": list(left_out)}))
        return
    console = Console(highlight=False)
    screen.show(study, shown, console=console, full=True)
    for reason in left_out:
        console.print(Text(f"Not compared: {reason}."))


def loaded(name: str, results: Path) -> Study:
    """The study of that name or in that folder, or a single record."""
    folder = folder_of(name, results)
    if folder is None:
        record = read_record(Path(name))
        return Study([record]) if isinstance(record, Record) else Study([], bad_files=[record])
    records, bad_files = load_records(folder)
    stated = study_in(folder)
    return Study(
        records,
        order=stated.order,
        axes=stated.axes,
        settings=stated.settings,
        bad_files=bad_files,
        name=folder.name,
    )


def folder_of(name: str, results: Path) -> Path | None:
    """The study's folder; None for a single record."""
    path = Path(name)
    if path.is_file():
        return None
    return path if path.is_dir() else choose_study(results, name)


def _whole(name: str, results: Path) -> Study:
    """A study with a good record. Raises UsageError if it has none, or a file is invalid."""
    study = loaded(name, results)
    if bad := study.bad_files:  # it may hold what differs
        rest = f" (and {len(bad) - 1} more such files)" if len(bad) > 1 else ""
        raise UsageError(f"{name} cannot be compared: {bad[0].path}: {bad[0].reason}{rest}")
    if study.good.empty:
        num_failed = len(study.records)
        raise UsageError(
            f"{name} has no good record ({num_failed} failed); run the study, or look at: dlscale status"
        )
    return study
