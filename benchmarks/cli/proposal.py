"""`dlscale proposal`: the scaling section of a proposal for compute time."""

from __future__ import annotations

from pathlib import Path

import click

from dlscale.analysis.proposal import section
from dlscale.analysis.proposal.sizes import node_hours_request
from dlscale.analysis.proposal.write import NAME, write_proposal
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.old_study import load, tell_left_out, with_predictions
from dlscale.benchmarks.cli.option_kinds import Backends
from dlscale.benchmarks.cli.options import base_option, choose_study, results_option, system_option
from dlscale.benchmarks.cli.predicted import predicted_option
from dlscale.benchmarks.records.record import Base
from dlscale.benchmarks.records.store import Store


@click.command()
@click.argument("study", required=False)
@click.option(
    "--threshold",
    type=float,
    default=75.0,
    show_default=True,
    metavar="PERCENT",
    help="Efficiency to be kept.",
)
@click.option(
    "--backends",
    type=Backends(),
    default=[],
    help="Show these; default: of each workload the fastest on most ranks.",
)
@click.option(
    "--samples", type=click.IntRange(min=1), help="Samples of one training: epochs x samples per epoch."
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Trainings to ask node-hours for.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help=f"Folder for the section; default: {NAME} in the study's folder.",
)
@system_option
@base_option
@predicted_option
@results_option
def proposal(
    study: str | None,
    system: str | None,
    base: Base | None,
    threshold: float,
    backends: list[str],
    samples: int | None,
    runs: int,
    out: Path | None,
    predicted: list[str],
    results: Path,
) -> int:
    """Write the scaling section of a proposal for compute time from STUDY (default: the latest).

    Text in markdown and LaTeX, a table per workload with its CSV, figures, and with --samples the node-hours of
    --runs trainings (docs/prediction.md). Sizes of --predicted are in a table of their own, without node-hours.

    Exit status: 2 if records are corrupt or were left out, 4 if no size above 1 rank has an efficiency with an
    interval.

    \b
    Examples:
      dlscale proposal
      dlscale proposal --system perlmutter --base node
      dlscale proposal weak-scaling --threshold 80 --backends ring --samples 115305030 --runs 5
    """  # noqa: D301
    if not 1 < threshold <= 100:
        raise UsageError(f"--threshold {threshold:g} is no percentage above 1; give for example 75")
    if runs > 1 and samples is None:
        raise UsageError(f"--runs {runs} says how many trainings, but not how long they are; add --samples")
    loaded = load(Store(choose_study(results, study, system=system)), base=base)
    loaded = with_predictions(loaded, predicted)
    out = out or loaded.folder / NAME
    written = write_proposal(
        loaded.study, out, threshold=threshold / 100, backends=backends, samples=samples, runs=runs
    )
    if backends and not written.curves:
        known = sorted({row.cell.backend for row in loaded.rows if row.throughput})
        raise UsageError(
            f"no training over {', '.join(backends)} has a number in {loaded.folder.name}; "
            f"choose from: {', '.join(known) or 'none was measured'}"
        )
    for curve in written.curves:
        click.echo(f"{section.curve_title(curve)}: {section.threshold_sentence(curve)}")
        if samples is not None:
            click.echo(section.request_sentence(node_hours_request(curve, samples=samples, runs=runs), curve))
    if written.curves:
        click.echo(f"proposal: {out / NAME}.md and .tex")
    else:
        click.echo(
            "no training has a number, so nothing was written; dlscale resume finishes the study", err=True
        )
    tell_left_out(loaded.study.bad_files, loaded.study.left_out)
    if loaded.study.left_out or loaded.study.bad_files:
        return FAILED_CASES
    decided = any(size.verdict != "unknown" for curve in written.curves for size in curve.scaled)
    return 0 if decided else INSUFFICIENT_DATA
