"""`dlscale figures --published`: published figures drawn with our own series, or checked against them.

Drawing and predictions are imported where they are needed: that takes longer than reading what is published.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.study_report import first_of
from dlscale.benchmarks.records.store import load_records

if TYPE_CHECKING:
    from dlscale.analysis.load import Study

DRAWN = "published-figures"  # the folder of what is drawn, in the results folder


def check_published(
    results: Path,
    *,
    names: Sequence[str] = (),
    on: str | None = None,
    claims: bool = False,
    everything: bool = False,
    as_json: bool = False,
    folder: Path | None = None,
) -> int:
    """Print whether our numbers, or predictions of `claims`, agree with what is published; returns the exit status.

    2 if a number of ours or two published ones disagree, 4 if nothing was compared in a figure that was asked for, or
    more launches are needed to tell. Raises UsageError.
    """
    from dlscale.analysis.published import checks, page, verdicts
    from dlscale.analysis.published.catalogue import FOLDER, load_published
    from dlscale.analysis.render.text import rows_of

    published = load_published(folder or FOLDER)
    published.named(names)  # a misspelt name is reported before any record is read
    publications = verdicts.load_publications(published, folder or FOLDER)
    everything = everything or bool(names)
    if claims:
        if on:
            raise UsageError(f"--on {on}: claims are not compared with records; leave --on or --claims out")
        rows = verdicts.verdicts(published, publications, names)
        shown = page.claims_screen(rows, everything=everything)
        given = set(rows["verdict"] if names else rows.loc[rows["check"].notna(), "verdict"])
        rows = rows.drop(columns="text")
    else:
        rows, reasons = checks.check(
            published, publications, studies=_studies(results, on), names=names, stand_in=on
        )
        shown = page.checks_screen(rows, reasons, everything=everything)
        given = set(page.verdict_of_figures(rows))
        rows = rows[checks.COLUMNS]
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": rows_of(rows)}))
    else:
        Console().print(shown)
    if verdicts.DISAGREES in given:
        return FAILED_CASES
    return 0 if given == {verdicts.AGREES} else INSUFFICIENT_DATA


def draw_published(
    results: Path,
    *,
    names: Sequence[str] = (),
    on: str | None = None,
    everything: bool = False,
    paper: float | None = None,
    folder: Path | None = None,
) -> int:
    """Draw published figures and a page of them into the results folder and say where; returns the exit status.

    By default those are drawn that show a study of ours or are predicted, else those with `names`, or `everything` of
    which three values or more are public. `paper` is a printed width in inches.
    """
    from dlscale.analysis.published import figures, page, predictions, verdicts
    from dlscale.analysis.published.catalogue import FOLDER, load_published

    published = load_published(folder or FOLDER)
    wanted, publications = published.named(names), verdicts.load_publications(published, folder or FOLDER)
    studies, predicted = _studies(results, on), predictions.predicted_curves(published, publications, names)
    laid_out = [(it, figures.panels_of(published, it, predicted, studies, on)) for it in wanted]
    drawn = [
        (figure, panels)
        for figure, panels in laid_out
        if any(everything or names or rows["evidence"].ne("published").any() for _, rows in panels)
    ]
    if drawn:
        figures.write_figures(drawn, results / DRAWN, paper=paper)
        assumed = predicted[predicted["assumed"] != ""].groupby("figure")["assumed"].first().to_dict()
        shown = {path.stem for path in (results / DRAWN).glob("*.svg")}
        path = page.write_index(
            published, verdicts.verdicts(published, publications), shown, assumed, results / DRAWN
        )
        click.echo(f"published figures: {len(drawn)} in {results / DRAWN}\nall at one glance: {path}")
    elif names or everything:
        click.echo(
            "fewer than three values are public, and nothing is predicted or ours: see --check --claims"
        )
    else:
        click.echo("no published figure with a study of ours or a prediction")
    rest = sum(bool(panels) for _, panels in laid_out) - len(drawn)
    if rest:
        have = "figures have" if rest > 1 else "figure has"
        click.echo(f"{rest} published {have} no counterpart here: dlscale figures --published --all")
    return 0 if drawn else INSUFFICIENT_DATA


def _studies(results: Path, stand_in: str | None) -> list[Study]:
    """Every study in the results folder, by name; those that give none are reported and left out.

    Raises UsageError if there is none of the system `stand_in`.
    """
    from dlscale.analysis.load import Study

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
        except UsageError as error:
            click.echo(f"left out: study {folder.name}: {error}", err=True)
            continue
        studies.append(Study(records))
        texts = [f"study {folder.name}: {text}" for text in studies[-1].left_out]
        for text in [*texts, *([first_of(bad)] if bad else [])]:
            click.echo(f"left out: {text}", err=True)
    return studies
