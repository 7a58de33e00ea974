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
from dlscale.benchmarks.cli import INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.options import Counts, Words, choose_study, json_option, results_option
from dlscale.benchmarks.cli.study_report import ended, first_of, load


@click.command()
@click.argument("names", metavar="A [B]...", nargs=-1, required=True)
@click.option(
    "--by",
    type=Words(),
    default=[],
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
@results_option
@json_option
def compare(
    *,
    names: tuple[str, ...],
    by: list[str],
    reference: str | None,
    ranks: list[int] | None,
    results: Path,
    as_json: bool,
) -> int:
    """Test which backend of study A is faster, show how A and B differ, or the newest of several next to the others.

    With one study, each backend is compared with the reference on each number of ranks above 1, by paired blocks and
    corrected for the number of comparisons (docs/metrics.md). Fewer comparisons need fewer blocks.

    A and B are names or folders of studies, as in `dlscale report`. Fields are sorted by class: those that forbid a
    comparison, those that may explain a difference, and those for information (docs/report.md). Throughputs follow if
    they may be compared; they are unpaired and support no claim.

    Of more studies the newest is shown next to the others: each training's throughput, the median and the range of
    theirs, and whether it is outside that range.

    Exit status: 2 if records of study A are corrupt or were left out, 3 if what is asked for is not comparable, 4 if no
    comparison inside a study is significant.

    \b
    Examples:
      dlscale compare weak-scaling --reference ring
      dlscale compare weak-scaling-1a2b3c4d weak-scaling-5e6f7a8b
      dlscale compare nightly/*/local/weak-scaling-*
      dlscale compare old/results/local/weak-scaling-1a2b3c4d weak-scaling --by code,versions
    """  # noqa: D301
    studies = [load(choose_study(results, name)) for name in names]
    if len(studies) == 1:
        if len(by) > 1:
            raise UsageError(f"--by {','.join(by)} inside one study; give a single factor")
        given = {"factor": next(iter(by), None), "reference": reference, "ranks": ranks}
        return _inside(studies[0], {name: value for name, value in given.items() if value}, as_json=as_json)
    if reference or ranks:
        raise UsageError(f"--reference and --ranks apply to one study, but {len(names)} were given")
    for study in studies:
        if study.bad_files:  # it may hold what differs
            raise UsageError(f"{study.name} cannot be compared: {first_of(study.bad_files)}")
        if study.good.empty:
            raise UsageError(f"{study.name} has no good record; run the study, or look at: dlscale status")
    return (_two if len(studies) == 2 else _several)(studies, by or None, as_json=as_json)


def _inside(study: Study, declaration: dict[str, Any], *, as_json: bool) -> int:
    """Print the comparisons inside one study. Raises UsageError if there is nothing to compare."""
    pairs, left_out = declared(study, **declaration)
    finding = replace(comparison.FINDING, compute=lambda study: comparison.tested(study, pairs))
    _put(study, finding, left_out, as_json=as_json)
    return ended(study, enough=(finding.of(study)["verdict"] != "cannot be shown").any())


def _two(studies: Sequence[Study], by: Sequence[str] | None, *, as_json: bool) -> int:
    """Print what differs between two studies, and their throughputs if they may be compared."""
    a, b = studies
    compared = compare_studies(good_records(a), good_records(b), factors=by)
    is_blocked = len(compared.blocking) > 0
    pairs, left_out = pairs_between(a, b, compared.keys)
    finding = between(a, pairs.head(0) if is_blocked else pairs)
    if as_json:
        columns = ["field", "factor", "title", "class", "blocks", "a", "b", "num_points"]
        differences = rows_of(compared.differences[columns])
        facts = compared._asdict() | {"comparable": not is_blocked, "differences": differences}
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


def _several(studies: Sequence[Study], by: Sequence[str] | None, *, as_json: bool) -> int:
    """Print the newest study's throughputs next to those of the others.

    Status 3 if one of them may not be compared with it, 4 if they have no training in common.
    """
    *earlier, newest = sorted(studies, key=lambda study: study.good["started"].min())
    for other in earlier:
        compared = compare_studies(good_records(other), good_records(newest), factors=by)
        if len(compared.blocking):
            names = f"A: {other.name}, B: {newest.name}"
            click.echo(f"{names}: {comparison_verdict(compared)}", err=True)
            return NOT_COMPARABLE
    finding = with_earlier(earlier)
    has_rows = len(finding.of(newest)) > 0
    _put(newest, finding, (), as_json=as_json, facts={"study": newest.name})
    if not has_rows:
        click.echo(f"{newest.name} has no training in common with the others", err=True)
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
        click.echo(json.dumps(dict(facts or {}) | as_data(study, shown) | {"left_out": list(left_out)}))
        return
    console = Console(highlight=False)
    screen.show(study, shown, console=console, full=True)
    for reason in left_out:
        console.print(Text(f"Not compared: {reason}."))
