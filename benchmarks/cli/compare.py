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
from dlscale.analysis.findings import cautions, comparison, predicted
from dlscale.analysis.load import Study
from dlscale.analysis.render import screen
from dlscale.analysis.render.text import as_data, rows_of
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.option_kinds import Backends, Counts, Words
from dlscale.benchmarks.cli.options import choose_study, json_option, results_option
from dlscale.benchmarks.cli.study_report import ended, first_of, load, predicted_option
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.store import read_record


@click.command()
@click.argument("names", metavar="A [B]...", nargs=-1, required=True)
@click.option(
    "--by",
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
    *, names: tuple[str, ...], by: list[str] | None, results: Path, as_json: bool, **asked: Any
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

    Exit status: 2 if records of study A are corrupt or were left out, 3 if what is asked for is not comparable, 4 if no
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
    named, inside = asked.pop("predicted"), any(asked.values())
    if named:
        if len(names) > 1 or by or inside or Path(names[0]).is_file():
            raise UsageError(
                "--predicted is compared with the numbers of one study; leave out --by, --reference, --ranks, "
                "--backends, records and a second study"
            )
        return _predicted(load(_folder_of(names[0], results), named=named), as_json=as_json)
    if len(names) == 1:
        if by and len(by) > 1:
            raise UsageError(f"--by {','.join(by)} inside one study; give a single factor")
        return _inside(_study_of(names[0], results), factor=by[0] if by else None, as_json=as_json, **asked)
    if inside:
        raise UsageError(
            f"--reference, --ranks and --backends apply to one study, but {len(names)} were given; leave them out"
        )
    studies = [_whole(name, results) for name in names]
    if len(studies) == 2:
        return _two(*studies, by=by, as_json=as_json)
    return _several(studies, by=by, as_json=as_json)


def _predicted(study: Study, *, as_json: bool) -> int:
    """Print the predictions of sizes that the study measured, with their errors."""
    every = predicted.FINDING.of(study)
    rows = every[every["error"].notna()]
    if as_json:
        click.echo(json.dumps({"schema": 2, "rows": rows_of(predicted.FINDING.exported(rows))}))
    elif len(rows):
        console = Console(highlight=False)
        console.print(Text(predicted.FINDING.sentence(rows)))
        console.print(screen.grid(predicted.FINDING.table(rows)))
    else:
        sizes = ", ".join(map(str, sorted(set(every["num_ranks"]))))
        click.echo(f"{study.name} measured none of the predicted sizes ({sizes} ranks)", err=True)
    return ended(study, enough=len(rows) > 0)


def _inside(study: Study, *, as_json: bool, **declaration: Any) -> int:
    """Print the comparisons inside one study. Raises UsageError if there is nothing to compare."""
    given = {name: value for name, value in declaration.items() if value}
    pairs, left_out = declared(study, **given)
    finding = replace(comparison.FINDING, compute=lambda study: comparison.tested(study, pairs))
    _put(study, finding, left_out, as_json=as_json)
    return ended(study, enough=(finding.of(study)["verdict"] != "cannot be shown").any())


def _two(a: Study, b: Study, *, by: Sequence[str] | None, as_json: bool) -> int:
    """Print what differs between two studies, and their throughputs if they may be compared."""
    compared = compare_studies(good_records(a), good_records(b), factors=by)
    is_blocked = len(compared.blocking) > 0
    pairs, left_out = pairs_between(a, b, compared.keys)
    finding = between(a, pairs.head(0) if is_blocked else pairs)
    if as_json:
        facts = {**compared._asdict(), "comparable": not is_blocked}
        columns = ["field", "factor", "title", "class", "blocks", "a", "b", "num_points"]
        facts["differences"] = rows_of(compared.differences[columns])
        _put(b, finding, left_out, as_json=True, facts=facts)
    else:
        console = Console(highlight=False)
        console.print(compared_text(compared), markup=False, soft_wrap=True)
        if len(compared.differences):
            console.print(screen.grid(difference_table(compared.differences), folded=True))
        for text in cautions.texts(a):
            console.print(f"A: {text}", markup=False)
        if not is_blocked and len(pairs):
            _put(b, finding, left_out, as_json=False)
        console.print(comparison_verdict(compared), markup=False, soft_wrap=True)
    return NOT_COMPARABLE if is_blocked else 0


def _several(studies: Sequence[Study], *, by: Sequence[str] | None, as_json: bool) -> int:
    """Print the newest study's throughputs next to those of the others.

    Status 3 if one of them may not be compared with it, 4 if they have no training in common.
    """
    *earlier, newest = sorted(studies, key=lambda study: study.good["started"].min())
    name = newest.good["study"].iloc[0]
    for other in earlier:
        compared = compare_studies(good_records(other), good_records(newest), factors=by)
        if len(compared.blocking):
            names = f"A: {other.good['study'].iloc[0]}, B: {name}"
            click.echo(f"{names}: {comparison_verdict(compared)}", err=True)
            return NOT_COMPARABLE
    finding = with_earlier(earlier)
    has_rows = len(finding.of(newest)) > 0
    if as_json or has_rows:
        _put(newest, finding, (), as_json=as_json, facts={"study": name})
    else:
        click.echo(f"{name} has no training in common with the others", err=True)
    return 0 if has_rows else INSUFFICIENT_DATA


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


def _folder_of(name: str, results: Path) -> Path:
    return Path(name) if Path(name).is_dir() else choose_study(results, name)


def _study_of(name: str, results: Path) -> Study:
    """The study of that name or in that folder, or a single record."""
    if not Path(name).is_file():
        return load(_folder_of(name, results))
    record = read_record(Path(name))
    return Study([record]) if isinstance(record, Record) else Study([], bad_files=[record])


def _whole(name: str, results: Path) -> Study:
    """A study with a good record. Raises UsageError if it has none, or a file is invalid."""
    study = _study_of(name, results)
    if study.bad_files:  # it may hold what differs
        raise UsageError(f"{name} cannot be compared: {first_of(study.bad_files)}")
    if study.good.empty:
        raise UsageError(
            f"{name} has no good record ({len(study.records)} failed); run the study, or look at: dlscale status"
        )
    return study
