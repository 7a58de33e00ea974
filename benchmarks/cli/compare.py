"""`dlscale compare`: which backend of a study is faster, or what differs between two studies.

With one study it shows the declared comparisons and which of them are significant; with two, the fields that differ
and whether their numbers may be compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console, Group

from dlscale.analysis.curves import with_curve_names
from dlscale.analysis.findings.contrast_table import contrasts_json
from dlscale.analysis.findings.contrasts import declared_contrasts, parity_forbids
from dlscale.analysis.measured import measure
from dlscale.analysis.render.contrasts import render_contrasts
from dlscale.base.errors import UsageError
from dlscale.base.quantities import split_list
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.answer_frameworks import answer
from dlscale.benchmarks.cli.compare_two import attempts, compare_two, folder_of
from dlscale.benchmarks.cli.option_kinds import Backends, Counts, Words
from dlscale.benchmarks.cli.options import choose_study, json_option, results_option
from dlscale.benchmarks.cli.predicted import compare_predicted, predicted_option
from dlscale.benchmarks.cli.stated_study import StatedStudy, study_in
from dlscale.benchmarks.cli.study_report import tell_left_out
from dlscale.benchmarks.records.files import load_parity
from dlscale.benchmarks.records.record import Record


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
    corrected for the number of comparisons (docs/metrics.md). Fewer comparisons need fewer blocks.

    A and B are names of studies, as in `dlscale report`, folders of studies, or single record files. Fields are sorted
    by class: those that forbid a comparison, those that may explain a difference, and those for information
    (docs/report.md). Throughputs follow if they may be compared; they are unpaired and support no claim.

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
        return answer([choose_study(results, name) for name in studies], results, as_json=as_json)
    if predicted:
        folder = folder_of(a, results)
        if b is not None or factor or reference or ranks or backends or folder is None:
            raise UsageError(
                "--predicted is held against the numbers of one study; leave out --factor, --reference, --ranks, "
                "--backends, records and a second study"
            )
        return compare_predicted(folder, predicted, as_json=as_json)
    if b is None:
        records, bad = attempts(a, results)
        if factor and len(factor) > 1:
            raise UsageError(f"--factor {','.join(factor)} inside one study; give a single factor")
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
            "--reference, --ranks and --backends apply to one study, but two were given; drop the second study "
            "or the options"
        )
    return compare_two((a, b), results, factor=factor, as_json=as_json)


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

    `folder` is the study's folder, which has the order of its names and the parity gate's verdicts; None for records
    from elsewhere. Status 3 if frameworks are compared whose networks differ by the parity gate, 4 if no comparison is
    significant. Raises UsageError if there is nothing to compare.
    """
    stated = study_in(folder) if folder else StatedStudy(fields={})
    variants = stated.variants
    named, _ = with_curve_names(records, (), settings=variants.settings if variants else ())
    parities = load_parity(folder) if folder else []
    study = measure(named, parities=parities, order=stated.order, variants=variants)
    tested = declared_contrasts(study, factor=factor, reference=reference, ranks=ranks, backends=backends)
    if as_json:
        click.echo(json.dumps(contrasts_json(tested)))
    else:
        Console(highlight=False).print(Group(*render_contrasts(tested)))
    forbids = parity_forbids(parities)
    if any(map(forbids, tested.found)) and not all(parity.passed for parity in parities):
        return NOT_COMPARABLE
    return 0 if tested.shown else INSUFFICIENT_DATA
