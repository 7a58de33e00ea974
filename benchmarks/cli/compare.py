"""`dlscale compare`: which backend of a study is faster, or what differs between two studies.

With one study it shows the declared comparisons and which of them are significant; with two, the fields that differ
and whether their numbers may be compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group

from dlscale.analysis.curves import with_curve_names
from dlscale.analysis.findings.contrast_declaration import declare, declare_between
from dlscale.analysis.findings.contrast_table import contrast_rows, contrasts_json
from dlscale.analysis.findings.contrasts import Contrasts, contrasts, flagged_blocks, parity_forbids
from dlscale.analysis.findings.study_comparison import compare_studies as compare_records
from dlscale.analysis.findings.study_comparison import (
    compared_text,
    comparison_json,
    comparison_verdict,
    difference_table,
)
from dlscale.analysis.findings.variant_declaration import declare_variants
from dlscale.analysis.interference import why_unclaimable
from dlscale.analysis.launches import latest_good, launches_of
from dlscale.analysis.measured import measure
from dlscale.analysis.render.contrasts import render_contrasts
from dlscale.base.errors import UsageError
from dlscale.base.quantities import split_list
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.answer_frameworks import answer
from dlscale.benchmarks.cli.compare_predicted import compare_predicted
from dlscale.benchmarks.cli.option_kinds import Backends, Counts, Words
from dlscale.benchmarks.cli.options import choose_study, json_option, named_folder, results_option
from dlscale.benchmarks.cli.predicted_option import predicted_option
from dlscale.benchmarks.cli.study_report import order_of, tell_left_out, variants_of
from dlscale.benchmarks.launch.measured_code import changed_files, changed_text
from dlscale.benchmarks.records.files import BadFile, load_parity, load_records, read_record
from dlscale.benchmarks.records.record import Parity, Record
from dlscale.benchmarks.study.study import read_study_file


@click.command()
@click.argument("a")
@click.argument("b", required=False)
@click.option(
    "--factor",
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
@click.option(
    "--frameworks",
    is_flag=True,
    help="Answer which framework to use, from study A and, for trainings to a target, B; lists with commas.",
)
@predicted_option
@results_option
@json_option
def compare(
    a: str,
    b: str | None,
    factor: list[str] | None,
    reference: str | None,
    ranks: list[int] | None,
    backends: list[str] | None,
    frameworks: bool,
    predicted: list[str],
    results: Path,
    as_json: bool,
) -> int:
    """Test which backend of study A is faster, or show which fields differ between studies A and B.

    With one study, each backend is compared with the reference on each number of ranks above 1, by paired blocks and
    corrected for the number of comparisons (docs/contrasts.md). Fewer comparisons need fewer blocks.

    A and B are names of studies, as in `dlscale report`, folders of studies, or single record files. Fields are sorted
    by class: those that forbid a comparison, those that may explain a difference, and those for information
    (docs/comparing.md). Throughputs follow if they may be compared; they are unpaired and support no claim.

    With --predicted, predictions are held against what study A measured: the error of each size, and whether it is
    inside the band (docs/prediction.md).

    With --frameworks, the answer of `dlscale run frameworks` is given again from its studies.

    Exit status: 2 if corrupt records of study A were left out, 3 if what is asked for is not comparable, 4 if no
    comparison inside a study is significant, or no predicted size was measured.

    \b
    Examples:
      dlscale compare weak-scaling --reference ring
      dlscale compare weak-scaling --factor framework --ranks 8
      dlscale compare weak-scaling --predicted latest
      dlscale compare --frameworks frameworks framework-losses
      dlscale compare weak-scaling-1a2b3c4d weak-scaling-5e6f7a8b
      dlscale compare old/results/local/weak-scaling-1a2b3c4d weak-scaling --factor code,versions
    """  # noqa: D301
    if frameworks:
        if factor or reference or ranks or backends or predicted:
            raise UsageError("--frameworks compares whole studies; leave out the other options")
        studies = [*split_list(a), *split_list(b or "")]
        return answer([named_folder(results, name) for name in studies], results, as_json=as_json)
    if predicted:
        folder = _folder(a, results)
        if b is not None or factor or reference or ranks or backends or folder is None:
            raise UsageError(
                "--predicted is held against the numbers of one study; leave out --factor, --reference, --ranks, "
                "--backends, records and a second study"
            )
        return compare_predicted(folder, predicted, as_json=as_json)
    if b is None:
        records, bad = _attempts(a, results)
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
            "--reference, --ranks and --backends apply to one study, but two were given; drop the second study "
            "or the options"
        )
    sides = [_good(name, _records(name, results)) for name in (a, b)]
    comparison = compare_records(*sides, factors=factor)
    unpaired = None
    folders = [_folder(name, results) for name in (a, b)]
    before, after = (_measured_files(folder) for folder in folders)
    if not comparison.blocking:
        parities = [parity for folder in folders if folder for parity in load_parity(folder)]
        unpaired = contrast_studies(*sides, keys=comparison.keys, parities=parities)
    if as_json:
        found = {**comparison_json(comparison), "contrasts": optional_contrast_rows(unpaired)}
        found["changed_files"] = changed_files(before, after) if before and after else None
        click.echo(json.dumps(found))
        return NOT_COMPARABLE if comparison.blocking else 0
    console = Console(highlight=False)
    console.print(compared_text(comparison), markup=False, soft_wrap=True)
    if comparison.differences:
        console.print(difference_table(comparison))
    if names := changed_text(before, after):
        console.print(f"Measured code that differs: {names}", markup=False, soft_wrap=True)
    if unpaired:
        show_contrasts(unpaired)
    console.print(comparison_verdict(comparison), markup=False, soft_wrap=True)
    return NOT_COMPARABLE if comparison.blocking else 0


def _folder(name: str, results: Path) -> Path | None:
    """The study's folder; None for a single record."""
    path = Path(name)
    if path.is_file():
        return None
    return path if path.is_dir() else choose_study(results, name)


def _records(name: str, results: Path) -> list[Record]:
    """All attempts in a study or file. Raises UsageError if one is invalid: it may hold what differs."""
    records, bad = _attempts(name, results)
    if bad:
        raise UsageError(f"{name} cannot be compared: {_problem(bad)}")
    return records


def _attempts(name: str, results: Path) -> tuple[list[Record], list[BadFile]]:
    """All attempts in a study or file, and the invalid files."""
    folder = _folder(name, results)
    if folder is not None:
        return load_records(folder)
    record = read_record(Path(name))
    return ([record], []) if isinstance(record, Record) else ([], [record])


def _measured_files(folder: Path | None) -> dict[str, str]:
    """Name -> digest of the code that a study ran; empty where its folder does not say."""
    try:
        return read_study_file(folder).measured_files if folder else {}
    except UsageError:  # records are compared without it, too
        return {}


def _good(name: str, records: list[Record]) -> list[Record]:
    """The latest good record of every case. Raises UsageError if there is none."""
    good = latest_good(records)
    if not good:
        raise UsageError(
            f"{name} has no good record ({len(records)} failed); run the study, or look at: dlscale status"
        )
    return good


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

    `folder` is the study's folder, which has the order of its names and the parity gate's verdicts; None for records
    from elsewhere. Status 3 if frameworks are compared whose networks differ by the parity gate, 4 if no comparison is
    significant. Raises UsageError if there is nothing to compare.
    """
    if len(factor) > 1:
        raise UsageError(f"--factor {','.join(factor)} inside one study; give a single factor")
    order = order_of(folder) if folder else []
    variants = variants_of(folder) if folder else None
    named, _ = with_curve_names(records, (), settings=variants.settings if variants else ())
    parities = load_parity(folder) if folder else []
    measured = measure(named, parities=parities, order=order, variants=variants)
    if variants and not (factor or reference):
        declaration = declare_variants(
            measured.launches, variants, order=order, ranks=ranks, backends=backends
        )
    else:
        declaration = declare(
            measured.cells,
            factor=factor[0] if factor else None,
            reference=reference,
            order=order,
            ranks=ranks,
            backends=backends,
        )
    forbidden = parity_forbids(parities)
    tested = contrasts(
        declaration,
        flagged=flagged_blocks(measured.outliers),
        forbidden=forbidden,
        unclaimable=why_unclaimable(measured.interference),
    )
    show_contrasts(tested, as_json=as_json)
    if any(forbidden(pair) for pair in declaration.pairs) and not all(parity.passed for parity in parities):
        return NOT_COMPARABLE
    return 0 if tested.shown else INSUFFICIENT_DATA


def contrast_studies(
    a: Sequence[Record], b: Sequence[Record], *, keys: Sequence[str], parities: Iterable[Parity] = ()
) -> Contrasts | None:
    """B's cells versus A's, unpaired; None if they have no measured cell in common."""
    declaration = declare_between(launches_of(a), launches_of(b), keys=keys)
    return contrasts(declaration, forbidden=parity_forbids(parities)) if declaration.pairs else None


def show_contrasts(tested: Contrasts, *, as_json: bool = False) -> None:
    """Print the comparisons as tables or as JSON."""
    if as_json:
        click.echo(json.dumps(contrasts_json(tested)))
    else:
        Console(highlight=False).print(Group(*render_contrasts(tested)))


def optional_contrast_rows(tested: Contrasts | None) -> list[dict[str, Any]]:
    """The comparisons as rows for `--json`; none without comparisons."""
    return contrast_rows(tested) if tested else []
