"""Several studies on one page, as `dlscale compare --frameworks` writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from dlscale.analysis.finding import Found
from dlscale.analysis.findings.failures import study_warnings
from dlscale.analysis.plots import Figure
from dlscale.analysis.provenance import Provenance, provenance
from dlscale.analysis.render.html.document import write_page
from dlscale.analysis.render.html.page import page_of_several
from dlscale.base.files import make_folder
from dlscale.benchmarks.cli.study_report import Loaded

FOLDER = "reports"  # of pages and figures of several studies, in the results folder


def put_several(
    loaded: Sequence[Loaded],
    found: Sequence[Found],
    path: Path,
    *,
    title: str,
    facts: Iterable[tuple[str, str]],
    summary: Iterable[str],
    warnings: Iterable[tuple[str, str]],
    origin: str,
    figures: Iterable[tuple[str, Figure]],
) -> Path:
    """Draw the figures of several studies beside their page, write it, and print where both are; returns its path."""
    from dlscale.analysis.figures.write import write_declared  # matplotlib is slow to load

    make_folder(path.parent)
    written = write_declared(figures, path.with_suffix(""), origin_of(loaded))
    if drawn := sum(file.suffix == ".png" for file in written):
        click.echo(f"figures: {drawn} in {path.with_suffix('')}")
    studies = [one.study for one in loaded]
    page = page_of_several(
        studies, found, title=title, facts=facts, summary=summary, warnings=warnings, origin=origin
    )
    write_page(page, path)
    click.echo(f"report: {path}\nopen: {path.resolve().as_uri()}")
    return path


def origin_of(loaded: Iterable[Loaded]) -> Provenance:
    """Where the records of all studies come from."""
    return provenance(record for one in loaded for record in one.study.records)


def warnings_of(one: Loaded) -> Iterator[str]:
    """The warnings about a study."""
    return (sentence for sentence, _ in study_warnings(one.study))
