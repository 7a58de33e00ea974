"""`dlscale proposal`: the scaling section of a proposal for compute time."""

from __future__ import annotations

from pathlib import Path

import click

from dlscale.analysis.findings import scaling
from dlscale.analysis.proposal import NAME, lines, write
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.option_kinds import Backends
from dlscale.benchmarks.cli.study_report import ChosenStudy, based_study_options, ended


@click.command()
@based_study_options
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
def proposal(
    *,
    chosen: ChosenStudy,
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
      dlscale proposal --system perlmutter --base node
      dlscale proposal weak-scaling --threshold 80 --backends ring --samples 115305030 --runs 5
    """  # noqa: D301
    if not 1 < threshold <= 100:
        raise UsageError(f"--threshold {threshold:g} is no percentage above 1; give for example 75")
    if runs > 1 and samples is None:
        raise UsageError(f"--runs {runs} says how many trainings, but not how long they are; add --samples")
    study = chosen.load()
    folder = out or chosen.folder / NAME
    curves = write(
        study, folder, threshold=threshold / 100, backends=backends, samples=samples or 0, runs=runs
    )
    if backends and not curves:
        rows = scaling.FINDING.of(study)
        known = sorted(set(rows.loc[rows["samples_per_second"].notna(), "backend"]))
        raise UsageError(
            f"no training over {', '.join(backends)} has a number in {study.name}; "
            f"choose from: {', '.join(known) or 'none was measured'}"
        )
    for curve in curves:
        click.echo(" ".join([f"{curve['title']}:", *lines("threshold", curve), *lines("request", curve)]))
    if curves:
        click.echo(f"proposal: {folder / NAME}.md and .tex")
    else:
        click.echo(
            "no training has a number, so nothing was written; dlscale resume finishes the study", err=True
        )
    return ended(study, enough=any(curve["is_decided"] for curve in curves))
