"""`dlscale figures --published`: published figures drawn with our own series, or checked against them.

Drawing and predictions are imported where they are needed: that takes longer than reading what is published.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.load import Study
from dlscale.analysis.published import catalogue
from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.study_report import ended, load
from dlscale.benchmarks.study.study import STUDY_FILE

DRAWN = "published-figures"  # the folder of what is drawn, in the results folder


def check_published(results: Path, names: Sequence[str], *, on: str | None, as_json: bool) -> int:
    """Print whether our numbers, and predictions, agree with what is published; returns the exit status.

    2 if a number of ours or two published ones disagree, 4 if nothing was compared in a figure that was asked for, or
    more launches are needed to tell. Raises UsageError.
    """
    from dlscale.analysis.published import checks, page, verdicts
    from dlscale.analysis.render.text import rows_of

    published = catalogue.load_published(catalogue.FOLDER)
    published.named(names)  # a misspelt name is reported before any record is read
    publications = verdicts.load_publications(published, catalogue.FOLDER)
    rows, reasons = checks.check(
        published, publications, studies=_studies(results, on), names=names, stand_in=on
    )
    claims = verdicts.verdicts(published, publications, names)
    if as_json:
        facts = {"rows": rows_of(rows[checks.COLUMNS]), "claims": rows_of(claims.drop(columns="text"))}
        click.echo(json.dumps({"schema": 1, **facts}))
    else:
        console = Console()
        console.print(page.claims_screen(claims, everything=bool(names)), "")
        console.print(page.checks_screen(rows, reasons, everything=bool(names)))
    given = set(page.verdict_of_figures(rows))
    if verdicts.DISAGREES in given:
        return FAILED_CASES
    return 0 if given == {verdicts.AGREES} else INSUFFICIENT_DATA


def draw_published(results: Path, names: Sequence[str], *, on: str | None, paper: float | None) -> int:
    """Draw published figures and a page of them into the results folder and say where; returns the exit status.

    Those with `names`, or those that show a study of ours or are predicted. `paper` is a printed width in inches.
    """
    from dlscale.analysis.published import figures, page, predictions, verdicts

    published = catalogue.load_published(catalogue.FOLDER)
    wanted = published.named(names)
    publications = verdicts.load_publications(published, catalogue.FOLDER)
    studies, predicted = _studies(results, on), predictions.predicted_curves(published, publications, names)
    laid_out = [(it, figures.panels_of(published, it, predicted, studies, on)) for it in wanted]
    drawn = [
        (figure, panels)
        for figure, panels in laid_out
        if panels and (names or any(set(rows["evidence"]) - {"published"} for _, rows in panels))
    ]
    place = results / DRAWN
    if drawn:
        figures.write_figures(drawn, place, paper=paper)
        assumed = predicted[predicted["assumed"] != ""].groupby("figure")["assumed"].first().to_dict()
        shown = {path.stem for path in place.glob("*.svg")}
        rows = verdicts.verdicts(published, publications)
        path = page.write_index(published, rows, shown, assumed, place)
        click.echo(f"published figures: {len(drawn)} in {place}\nall at one glance: {path}")
    rest = len(laid_out) - len(drawn)
    if rest:
        why = "have fewer than three public values" if names else "show no study of ours, nor a prediction"
        click.echo(f"not drawn: {rest} published figures, which {why}")
    return 0 if drawn else INSUFFICIENT_DATA


def _studies(results: Path, stand_in: str | None) -> list[Study]:
    """Every study in the results folder, by name; those that give none are reported and left out.

    Raises UsageError if there is none of the system `stand_in`.
    """
    folders = sorted(path.parent for path in results.glob(f"*/*/{STUDY_FILE}"))
    if stand_in:
        definitions.one_of(f"system with a study in {results}", stand_in, {it.parent.name for it in folders})
    studies = []
    for folder in folders:
        try:
            studies.append(load(folder))
            ended(studies[-1], enough=True)  # which prints what is left out of it
        except UsageError as error:
            click.echo(f"left out: study {folder.name}: {error}", err=True)
    return studies
