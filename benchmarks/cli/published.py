"""`dlscale figures --published`: published figures drawn with our own series, or checked against them.

Drawing and predictions are imported where they are needed: that takes longer than reading what is published.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.measured import Measured, measure
from dlscale.analysis.published.catalogue import load_published
from dlscale.analysis.published.compare import AGREES, DISAGREES, check_figures
from dlscale.analysis.published.values import FOLDER
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.records.files import load_records

DRAWN = "published-figures"  # the folder of what is drawn, in the results folder


def check_published(
    results: Path,
    *,
    names: Sequence[str] = (),
    on: str | None = None,
    claims: bool = False,
    everything: bool = False,
    as_json: bool = False,
    folder: Path = FOLDER,
) -> int:
    """Print whether our numbers, or predictions of `claims`, agree with what is published; returns the exit status.

    2 if a number of ours or two published ones disagree, 4 if nothing was compared in a figure that was asked for, or
    more launches are needed to tell. Raises UsageError.
    """
    published = load_published(folder)
    for name in names:
        published.figure(name)  # a misspelt name is reported before any record is read
    from dlscale.analysis.published import output
    from dlscale.analysis.published.claims import load_publications

    everything, publications = everything or bool(names), load_publications(published, folder)
    if claims:
        if on:
            raise UsageError(f"--on {on}: claims are not compared with records; leave --on or --claims out")
        from dlscale.analysis.published.claim_verdicts import verdicts

        rows = verdicts(published, publications, names=names)
        found, content = output.render_claims(rows, everything=everything), output.claims_json(rows)
        said = [row.verdict for row in rows if names or row.claim]
    else:
        from dlscale.analysis.published.shapes import with_shapes

        studies = _studies(results, on)
        checks = check_figures(published, names=names, studies=studies, stand_in=on)
        checks = with_shapes(checks, published, publications, studies=studies, stand_in=on)
        found, content = output.render_checks(checks, everything=everything), output.checks_json(checks)
        said = [check.verdict for check in checks]
    if as_json:
        click.echo(json.dumps(content))
    else:
        Console().print(found)
    if DISAGREES in said:
        return FAILED_CASES
    return 0 if said and set(said) == {AGREES} else INSUFFICIENT_DATA


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
    from dlscale.analysis.published.claim_verdicts import verdicts
    from dlscale.analysis.published.claims import load_publications
    from dlscale.analysis.published.figures import write_figures
    from dlscale.analysis.published.overview import write_index
    from dlscale.analysis.published.predictions import predicted_curves

    published = load_published(folder)
    publications = load_publications(published, folder)
    claims, alone = verdicts(published, publications), everything or bool(names)
    written = write_figures(
        published,
        results / DRAWN,
        names=names,
        studies=_studies(results, on),
        predicted=predicted_curves(published, publications, names=names),
        claims=claims,
        stand_in=on,
        alone=alone,
    )
    drawn = sum(path.suffix == ".png" for path in written)
    if drawn:
        page = write_index(published, claims, results / DRAWN)
        click.echo(f"published figures: {drawn} in {results / DRAWN}\nall at one glance: {page}")
    elif alone:
        click.echo("no published figure has a layout to be drawn in")
    else:
        click.echo("no published figure with a study of ours or a prediction")
    rest = 0 if alone else sum(bool(figure.panels) for figure in published.figures.values()) - drawn
    if rest:
        have = "figures have" if rest > 1 else "figure has"
        click.echo(f"{rest} published {have} no counterpart here: dlscale figures --published --all")
    return 0 if drawn else INSUFFICIENT_DATA


def _studies(results: Path, stand_in: str | None) -> list[Measured]:
    """Every study in the results folder, by name; those that give none are reported and left out.

    Raises UsageError if there is none of the system `stand_in`.
    """
    studies = []
    folders = sorted(path.parent for path in results.glob("*/*/study.json"))
    systems = sorted({folder.parent.name for folder in folders})
    if stand_in and stand_in not in systems:
        raise UsageError(
            f"--on {stand_in}: no study of it in {results}; there are studies of: {', '.join(systems) or 'none'}"
        )
    for folder in folders:
        try:
            records, bad = load_records(folder)
            studies.append(measure(records))
        except UsageError as error:
            click.echo(f"left out: study {folder.name}: {error}", err=True)
            continue
        if bad:
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            click.echo(f"left out: {bad[0].path}{more}: {bad[0].reason}", err=True)
    return studies
