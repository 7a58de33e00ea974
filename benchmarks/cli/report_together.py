"""`dlscale report A B`: several studies that may be compared, in one table and on one page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.findings.failures import study_warnings
from dlscale.analysis.findings.study_comparison import compare_studies, compared_text, comparison_verdict
from dlscale.analysis.launches import latest_good
from dlscale.analysis.provenance import provenance
from dlscale.analysis.render.grid import render_table
from dlscale.analysis.render.html.document import write_page
from dlscale.analysis.render.html.together import (
    UNPAIRED,
    Member,
    labels,
    numbers,
    numbers_json,
    page_together,
)
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
        if as_json:
            click.echo(json.dumps({"schema": 1, "comparable": True, "rows": numbers_json(members)}))
        else:
            _print(members, sentences)
            path = results / FOLDER / _file_name(members)
            make_folder(path.parent)
            origin = provenance(record for one in loaded for record in one.study.records)
            from dlscale.analysis.figures.together import write_together

            written = write_together(members, path.with_suffix(""), origin)
            if drawn := sum(file.suffix == ".png" for file in written):
                click.echo(f"figures: {drawn} in {path.with_suffix('')}")
            write_page(page_together(members, sentences), path)
            click.echo(f"report: {path}\nopen: {path.resolve().as_uri()}")
            if in_browser:
                open_page(path)
    incomplete = any(one.study.bad_files or one.study.left_out or one.study.failures for one in loaded)
    return FAILED_CASES if incomplete else 0


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


def _members(loaded: Sequence[Loaded]) -> list[Member]:
    begun = [min(record.started_at for record in one.study.records)[:10] for one in loaded]
    systems = [", ".join(one.study.provenance.systems) for one in loaded]
    names = [one.folder.name for one in loaded]
    return [
        Member(label=label, name=one.folder.name, begun=date, study=one.study, warnings=tuple(_warnings(one)))
        for label, one, date in zip(
            labels(list(zip(systems, begun, names, strict=True))), loaded, begun, strict=True
        )
    ]


def _warnings(one: Loaded) -> Iterator[str]:
    for sentence, _ in study_warnings(one.study):
        yield sentence


def _print(members: Sequence[Member], sentences: Sequence[str]) -> None:
    console = Console(highlight=False)
    for part in render_table(numbers(members, controls=False)):
        console.print(part)
    for text in [
        *(f"{member.label}: {sentence}" for member in members for sentence in member.warnings),
        *sentences,
        UNPAIRED,
    ]:
        console.print(text, markup=False, soft_wrap=True)


def _file_name(members: Sequence[Member]) -> str:
    names = "+".join(member.name for member in members)
    whole = "+".join(f"{member.study.provenance.systems}{member.name}" for member in members)
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{names[:_MAX_NAME]}-{digest}.html"
