"""`dlscale proposal`: the scaling section of a proposal for compute time."""

from __future__ import annotations

from pathlib import Path

import click

from dlscale.analysis.proposal import NAME, lines, write
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import Backends, choose_study, results_option, study_argument
from dlscale.benchmarks.cli.study_report import ended, load, predicted_option


@click.command()
@study_argument
@results_option
@predicted_option
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
    help="Trainings to ask node-hours for, with --samples.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help=f"Folder for the section; default: {NAME} in the study's folder.",
)
def proposal(
    *,
    name: str | None,
    results: Path,
    predicted: list[str],
    threshold: float,
    backends: list[str],
    samples: int | None,
    runs: int,
    out: Path | None,
) -> int:
    """Write the scaling section of a proposal for compute time from STUDY (default: the latest).

    Text in markdown and LaTeX, a table per workload with its CSV, figures, and with --samples the node-hours of
    --runs trainings (docs/prediction.md). Sizes of --predicted are in a separate table, without node-hours.

    Exit status: 2 if records are corrupt or were left out, 4 if no size above 1 rank has an efficiency with an
    interval.

    \b
    Examples:
      dlscale proposal
      dlscale proposal weak-scaling --threshold 80 --backends ring --samples 115305030 --runs 5
    """  # noqa: D301
    if not 1 < threshold <= 100:
        raise UsageError(f"--threshold {threshold:g} is no percentage above 1; give for example 75")
    folder = choose_study(results, name)
    study = load(folder, named=predicted)
    place = out or folder / NAME
    curves = write(
        study, place, threshold=threshold / 100, backends=backends, samples=samples or 0, runs=runs
    )
    for curve in curves:
        click.echo(" ".join([f"{curve['title']}:", *lines("threshold", curve), *lines("request", curve)]))
    if curves:
        click.echo(f"proposal: {place / NAME}.md and .tex")
    else:
        click.echo(f"no training has a number in {study.name}, so nothing was written", err=True)
    return ended(study, enough=any(curve["is_decided"] for curve in curves))
