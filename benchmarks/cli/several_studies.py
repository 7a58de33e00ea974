"""Several studies on one page: `dlscale report A B`, and what `dlscale compare --frameworks` shares with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.declare import brief
from dlscale.analysis.finding import Found, collect
from dlscale.analysis.findings import together
from dlscale.analysis.findings.failures import study_warnings
from dlscale.analysis.findings.study_comparison import compare_studies, compared_text, comparison_verdict
from dlscale.analysis.launches import latest_good
from dlscale.analysis.plots import Figure, Plot
from dlscale.analysis.provenance import Provenance, provenance
from dlscale.analysis.render.grid import render_table
from dlscale.analysis.render.html.document import write_page
from dlscale.analysis.render.html.page import page_of_several
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder
from dlscale.benchmarks.cli import FAILED_CASES, NOT_COMPARABLE
from dlscale.benchmarks.cli.browser import open_page
from dlscale.benchmarks.cli.study_report import Loaded, load
from dlscale.benchmarks.records.files import uncollected
from dlscale.benchmarks.records.record import Base
from dlscale.benchmarks.records.store import Store

FOLDER = "reports"  # of pages and figures of several studies, in the results folder
_MAX_NAME = 120  # characters of a page's file name


def report_together(
    folders: Sequence[Path], *, results: Path, base: Base | None, as_json: bool, in_browser: bool
) -> int:
    """Print the numbers of several studies, draw their figures and write their page; returns the exit status.

    Status 3, and neither, if two of them may not be compared. Raises UsageError for a study without a
    good record, and for one that is named twice.
    """
    places = [folder.resolve() for folder in folders]
    if twice := next((place for place in places if places.count(place) > 1), None):
        raise UsageError(f"{twice.name!r} is named twice; name different studies, or use longer prefixes")
    with uncollected():
        loaded = [load(Store(folder), base=base) for folder in folders]
        sentences, comparable = _compared(loaded)
        if not comparable:
            click.echo("\n".join(sentences), err=True)
            return NOT_COMPARABLE
        members = _members(loaded)
        found = collect(together.together_findings(members, sentences), loaded[0].study)
        if as_json:
            rows = together.numbers_json(members)
            click.echo(json.dumps({"schema": 1, "comparable": True, "rows": rows}))
        else:
            _print(members, sentences)
            plots = ([block for block in one.blocks if isinstance(block, Plot)] for one in found)
            path = put_several(
                loaded,
                found,
                results / FOLDER / _file_name(members),
                title=together.title_of(members),
                facts=[(member.label, f"{member.name}, {member.begun}") for member in members],
                summary=[plot.says for plot in next(filter(None, plots), [])],
                warnings=[
                    (f"{member.label}: {sentence}", "studies")
                    for member in members
                    for sentence in member.warnings
                ],
                origin="; ".join(member.study.provenance.short_line() for member in members),
                figures=together.together_figures(members),
            )
            if in_browser:
                open_page(path)
    incomplete = any(one.study.bad_files or one.study.left_out or one.study.failures for one in loaded)
    return FAILED_CASES if incomplete or any(one.error for one in found) else 0


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


def _compared(loaded: Sequence[Loaded]) -> tuple[list[str], bool]:
    """What differs between each two of the studies, in sentences, and whether all may be compared."""
    good = []
    for one in loaded:
        good.append(latest_good(one.study.records))
        if not good[-1]:
            raise UsageError(f"{one.folder.name} has no good record; run it, or look at: dlscale status")
    sentences, comparable = [], True
    for (a, records_a), (b, records_b) in combinations(zip(loaded, good, strict=True), 2):
        comparison = compare_studies(records_a, records_b)
        comparable = comparable and not comparison.blocking
        names = f"A {a.folder.name}, B {b.folder.name}"
        sentences.append(f"{names}: {compared_text(comparison)}; {comparison_verdict(comparison)}.")
    return sentences, comparable


def _members(loaded: Sequence[Loaded]) -> list[together.Member]:
    begun = [min(record.started_at for record in one.study.records)[:10] for one in loaded]
    systems = [", ".join(one.study.provenance.systems) for one in loaded]
    names = [one.folder.name for one in loaded]
    labels = together.labels(list(zip(systems, begun, names, strict=True)))
    return [
        together.Member(
            label=label, name=one.folder.name, begun=date, study=one.study, warnings=tuple(warnings_of(one))
        )
        for label, one, date in zip(labels, loaded, begun, strict=True)
    ]


def warnings_of(one: Loaded) -> Iterator[str]:
    """The warnings about a study."""
    return (sentence for sentence, _ in study_warnings(one.study))


def _print(members: Sequence[together.Member], sentences: Sequence[str]) -> None:
    console = Console(highlight=False)
    # The page has the columns that 80 have no room for.
    for part in render_table(brief(together.numbers(members, controls=False), without=("memory",))):
        console.print(part)
    for text in [
        *(f"{member.label}: {sentence}" for member in members for sentence in member.warnings),
        *sentences,
        together.UNPAIRED,
    ]:
        console.print(text, markup=False, soft_wrap=True)


def _file_name(members: Sequence[together.Member]) -> str:
    names = "+".join(member.name for member in members)
    whole = "+".join(f"{member.study.provenance.systems}{member.name}" for member in members)
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{names[:_MAX_NAME]}-{digest}.html"
