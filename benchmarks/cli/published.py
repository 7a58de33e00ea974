"""`dlscale verify-figures` and `dlscale figures --published`: published figures, and our own series beside them.

What is predicted of them is imported where it is needed: that takes longer than reading what is published.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.findings import scaling
from dlscale.analysis.measured import Measured, measure
from dlscale.analysis.published.catalogue import Published, load_published
from dlscale.analysis.published.figures import write_figures
from dlscale.analysis.published.values import FOLDER
from dlscale.analysis.published.verdicts import render_verdicts, to_json
from dlscale.analysis.published.verify import Check, verify
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.options import json_option, results_option
from dlscale.benchmarks.records.files import load_records

DRAWN = "published-figures"  # the folder of what is drawn, in the results folder

on_option = click.option(
    "--on",
    metavar="SYSTEM",
    help="Take our records of that system where a publication's own machine is asked for.",
)
all_option = click.option(
    "--all", "everything", is_flag=True, help="Also show the published figures that no study of ours is in."
)
published_option = click.option(
    "--published-data",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default="results/published of the checkout",
    help="Folder of the published values.",
)


@click.command("verify-figures")
@click.argument("names", metavar="[FIGURE]...", nargs=-1)
@click.option(
    "--landmarks",
    is_flag=True,
    help="Check what publications claim against predictions from public inputs instead.",
)
@results_option
@published_option
@on_option
@all_option
@json_option
def verify_figures(
    names: Sequence[str],
    landmarks: bool,
    results: Path,
    folder: Path,
    on: str | None,
    everything: bool,
    as_json: bool,
) -> int:
    """Compare our records with published figures (default: all), and published values with each other.

    Our records are those of every study in the results folder. A published number is compared with a cell of ours that
    is the same thing on as many devices; whatever cannot be compared is unknown, and never passes; --all, --json, and
    naming a figure tell why (docs/published-figures.md). With --landmarks, each claim of a publication stands beside
    what is predicted from single-node facts and the network's description (benchmarks/landmarks); nothing is measured.

    Exit status: 2 if a number of ours or two published ones disagree, 4 if nothing was compared in a figure that was
    asked for, or more launches are needed to tell.

    \b
    Examples:
      dlscale verify-figures
      dlscale verify-figures powerai-ddl-2 cosmogan-edison --json
      dlscale verify-figures tf-cnn-p100 --on my-dgx
      dlscale verify-figures --landmarks horovod-efficiencies
    """  # noqa: D301
    published = load_published(folder)
    for name in names:
        published.figure(name)  # a misspelt name is reported before any record is read
    if landmarks:
        if on:
            raise UsageError(f"--on {on}: landmarks have no records; leave --on or --landmarks out")
        return _verify_landmarks(published, names, everything=everything, as_json=as_json)
    studies = _studies(results, on)
    checks = verify(published, names=names, studies=studies, stand_in=on)
    if as_json:
        click.echo(json.dumps(to_json(checks)))
    else:
        Console().print(render_verdicts(checks, everything=everything or bool(names)))
    return _status(checks)


def _verify_landmarks(published: Published, names: Sequence[str], *, everything: bool, as_json: bool) -> int:
    from dlscale.analysis.landmarks.claims import AGREES, DISAGREES, verdicts
    from dlscale.analysis.landmarks.landmark import load_landmarks
    from dlscale.analysis.landmarks.render import render_claims, to_json

    found = verdicts(published, load_landmarks(published), names=names)
    if as_json:
        click.echo(json.dumps(to_json(found)))
    else:
        Console().print(render_claims(found, everything=everything or bool(names)))
    if any(row.verdict == DISAGREES for row in found):
        return FAILED_CASES
    shown = [row for row in found if names or row.claim]
    return 0 if shown and all(row.verdict == AGREES for row in shown) else INSUFFICIENT_DATA


def _status(checks: Sequence[Check]) -> int:
    if any(check.disagrees for check in checks):
        return FAILED_CASES
    return 0 if all(check.passes for check in checks) else INSUFFICIENT_DATA


def draw_published(
    results: Path,
    *,
    names: Sequence[str] = (),
    on: str | None = None,
    everything: bool = False,
    folder: Path = FOLDER,
) -> int:
    """Draw published figures and an overview into the results folder and say where; returns the exit status.

    By default those are drawn that show a study of ours or are predicted, else those with `names`, or `everything`.
    """
    from dlscale.analysis.landmarks.bands import simulated_curves
    from dlscale.analysis.landmarks.index import write_index
    from dlscale.analysis.landmarks.landmark import load_landmarks

    published = load_published(folder)
    landmarks = load_landmarks(published)
    alone = everything or bool(names)
    written = write_figures(
        published,
        results / DRAWN,
        names=names,
        studies=_studies(results, on),
        simulated=simulated_curves(published, landmarks, names=names),
        stand_in=on,
        alone=alone,
    )
    drawn = sum(path.suffix == ".png" for path in written)
    page = write_index(published, landmarks, results / DRAWN) if drawn else None
    click.echo(
        f"published figures: {drawn} in {results / DRAWN}\nall at one glance: {page}"
        if drawn
        else "no published figure with a study of ours or a prediction"
        if not alone
        else "no published figure has a layout to be drawn in"
    )
    rest = 0 if alone else sum(bool(figure.panels) for figure in published.figures.values()) - drawn
    if rest:
        click.echo(
            f"{rest} published figure{'s have' if rest > 1 else ' has'} no counterpart here: "
            "dlscale figures --published --all"
        )
    return 0 if drawn else INSUFFICIENT_DATA


def _studies(results: Path, stand_in: str | None) -> list[Measured]:
    """Every study in the results folder, by name; those that give none are reported and left out.

    Raises UsageError if there is none of the system `stand_in`.
    """
    studies = []
    paths = sorted(results.glob("*/*/study.json"))
    systems = sorted({path.parent.parent.name for path in paths})
    if stand_in and stand_in not in systems:
        raise UsageError(
            f"--on {stand_in}: no study of it in {results}; there are studies of: {', '.join(systems) or 'none'}"
        )
    for path in paths:
        study = path.parent
        try:
            records, bad = load_records(study)
            study_of = measure(records)
            scaling.FINDING.of(study_of)
            studies.append(study_of)
        except UsageError as error:
            click.echo(f"left out: study {study.name}: {error}", err=True)
            continue
        if bad:
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            click.echo(f"left out: {bad[0].path}{more}: {bad[0].reason}", err=True)
    return studies
