"""`dlscale compare`: which backend of a study is faster, what differs between two, or the newest of several.

With one study it shows the declared comparisons and which of them are significant; with two, the fields that differ,
and their throughputs if they may be compared; with more, the newest beside the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.markup import escape

from dlscale.analysis.curves import with_curve_names
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.contrast_declaration import STUDY_FACTOR, declare_between
from dlscale.analysis.findings.contrast_table import (
    BETWEEN_STUDIES,
    CONTRASTS,
    contrast_sentences,
    contrast_title,
    contrasts_json,
    lead_text,
)
from dlscale.analysis.findings.contrasts import Contrasts, contrasts, declared_contrasts
from dlscale.analysis.findings.earlier import EARLIER, beside_earlier
from dlscale.analysis.findings.study_comparison import (
    DIFFERENCES,
    compare_studies,
    compared_text,
    comparison_json,
    comparison_verdict,
)
from dlscale.analysis.launches import latest_good, launches_of
from dlscale.analysis.measured import measure
from dlscale.analysis.render.grid import render_legend, render_table
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.option_kinds import Backends, Counts, Words
from dlscale.benchmarks.cli.options import choose_study, json_option, results_option
from dlscale.benchmarks.cli.predicted import compare_predicted, predicted_option
from dlscale.benchmarks.cli.stated_study import StatedStudy, study_in
from dlscale.benchmarks.cli.study_report import tell_left_out
from dlscale.benchmarks.records.files import BadFile, load_records, read_record
from dlscale.benchmarks.records.record import Record


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
    """Test which backend of study A is faster, show how A and B differ, or the newest of several beside the others.

    With one study, each backend is compared with the reference on each number of ranks above 1, by paired blocks and
    corrected for the number of comparisons (docs/metrics.md). Fewer comparisons need fewer blocks.

    A and B are names of studies, as in `dlscale report`, folders of studies, or single record files. Fields are sorted
    by class: those that forbid a comparison, those that may explain a difference, and those for information
    (docs/report.md). Throughputs follow if they may be compared; they are unpaired and support no claim.

    Of more studies the newest is shown beside the others: each training's throughput, the median and the range of
    theirs, and whether it is outside that range.

    With --predicted, predictions are held against what study A measured: the error of each size, and whether it is
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
                "--predicted is held against the numbers of one study; leave out --by, --reference, --ranks, "
                "--backends, records and a second study"
            )
        return compare_predicted(folder, predicted, as_json=as_json)
    if not others:
        records, bad = attempts(a, results)
        if factor and len(factor) > 1:
            raise UsageError(f"--by {','.join(factor)} inside one study; give a single factor")
        status = contrast_study(
            records,
            folder=folder_of(a, results),
            factor=factor[0] if factor else None,
            reference=reference,
            ranks=ranks or (),
            backends=backends or (),
            as_json=as_json,
        )
        tell_left_out(bad)
        return FAILED_CASES if bad else status
    if reference or ranks or backends:
        raise UsageError(
            f"--reference, --ranks and --backends apply to one study, but {len(names)} were given; leave them out"
        )
    compared = compare_two if len(names) == 2 else compare_several
    return compared(names, results, factor=factor, as_json=as_json)


def contrast_study(
    records: Sequence[Record],
    *,
    folder: Path | None,
    factor: str | None = None,
    reference: str | None = None,
    ranks: Sequence[int] = (),
    backends: Sequence[str] = (),
    as_json: bool = False,
) -> int:
    """Print the comparisons inside one study; returns the exit status.

    `folder` is the study's folder, which has the order of its names; None for records from elsewhere. Status 4 if no
    comparison is significant. Raises UsageError if there is nothing to compare.
    """
    stated = study_in(folder) if folder else StatedStudy(fields={})
    variants = stated.variants
    named, _ = with_curve_names(records, (), settings=variants.settings)
    study = measure(named, order=stated.order, variants=variants)
    tested = declared_contrasts(study, factor=factor, reference=reference, ranks=ranks, backends=backends)
    if as_json:
        click.echo(json.dumps(contrasts_json(tested)))
    else:
        Console(highlight=False).print(Group(*render_contrasts(tested)))
    return 0 if tested.shown else INSUFFICIENT_DATA


def compare_two(names: Sequence[str], results: Path, *, factor: Sequence[str] | None, as_json: bool) -> int:
    """Print what differs between two studies, and their throughputs if they may be compared."""
    a, b = (_good(name, results) for name in names)
    comparison = compare_studies(a, b, factors=factor)
    unpaired = None
    if not comparison.blocking:
        unpaired = contrast_studies(a, b, keys=comparison.keys)
    if as_json:
        rows = [CONTRASTS.data(contrast) for contrast in unpaired.found] if unpaired else []
        click.echo(json.dumps({**comparison_json(comparison), "contrasts": rows}))
        return NOT_COMPARABLE if comparison.blocking else 0
    console = Console(highlight=False)
    console.print(compared_text(comparison), markup=False, soft_wrap=True)
    for part in render_table(DIFFERENCES.of(comparison.differences), caption=False):
        console.print(part)
    if unpaired:
        console.print(Group(*render_contrasts(unpaired)))
    console.print(comparison_verdict(comparison), markup=False, soft_wrap=True)
    return NOT_COMPARABLE if comparison.blocking else 0


def compare_several(
    names: Sequence[str], results: Path, *, factor: Sequence[str] | None, as_json: bool
) -> int:
    """Print the newest study's throughputs beside those of the others; returns the exit status.

    Status 3 if one of them may not be compared with it, 4 if they have no training in common.
    """
    *earlier, newest = sorted(
        (_good(name, results) for name in names),
        key=lambda records: min(record.started_at for record in records),
    )
    for other in earlier:
        comparison = compare_studies(other, newest, factors=factor)
        if comparison.blocking:
            click.echo(
                f"A: {other[0].study}, B: {newest[0].study}: {comparison_verdict(comparison)}", err=True
            )
            return NOT_COMPARABLE
    rows = [scaling.FINDING.of(measure(records)) for records in (newest, *earlier)]
    cells = beside_earlier(rows[0], rows[1:])
    if as_json:
        click.echo(
            json.dumps(
                {"schema": 1, "study": newest[0].study, "rows": [EARLIER.data(cell) for cell in cells]}
            )
        )
    elif cells:
        console = Console(highlight=False)
        for part in render_table(EARLIER.of(cells)):
            console.print(part)
    else:
        click.echo(f"{newest[0].study} has no training in common with the others", err=True)
    return 0 if cells else INSUFFICIENT_DATA


def folder_of(name: str, results: Path) -> Path | None:
    """The study's folder; None for a single record."""
    path = Path(name)
    if path.is_file():
        return None
    return path if path.is_dir() else choose_study(results, name)


def attempts(name: str, results: Path) -> tuple[list[Record], list[BadFile]]:
    """All attempts in a study or file, and the invalid files."""
    folder = folder_of(name, results)
    if folder is not None:
        return load_records(folder)
    record = read_record(Path(name))
    return ([record], []) if isinstance(record, Record) else ([], [record])


def _good(name: str, results: Path) -> list[Record]:
    """The latest good record of every case. Raises UsageError if there is none, or a file is invalid."""
    records, bad = attempts(name, results)
    if bad:  # it may hold what differs
        rest = f" (and {len(bad) - 1} more such files)" if len(bad) > 1 else ""
        raise UsageError(f"{name} cannot be compared: {bad[0].path}: {bad[0].reason}{rest}")
    if good := latest_good(records):
        return good
    raise UsageError(
        f"{name} has no good record ({len(records)} failed); run the study, or look at: dlscale status"
    )


def contrast_studies(a: Sequence[Record], b: Sequence[Record], *, keys: Sequence[str]) -> Contrasts | None:
    """B's cells versus A's, unpaired; None if they have no measured cell in common."""
    declaration = declare_between(launches_of(a), launches_of(b), keys=keys)
    return contrasts(declaration) if declaration.pairs else None


def render_contrasts(contrasts: Contrasts) -> Iterator[RenderableType]:
    """The sentences and tables of all comparisons, for `rich.console.Console.print`."""
    yield escape(lead_text(contrasts))
    declared = BETWEEN_STUDIES if contrasts.factor == STUDY_FACTOR else CONTRASTS
    for heading, group in groupby(contrasts.found, key=contrast_title):
        members = list(group)
        yield f"[bold]{escape(heading)}[/bold]"
        yield from render_table(declared.of(members), caption=False, legend=False)
        if declared is CONTRASTS:
            yield from map(escape, contrast_sentences(members))
            yield ""
    for reason in contrasts.left_out:
        yield escape(f"Not compared: {reason}.")
    yield from render_legend(declared.legend)
