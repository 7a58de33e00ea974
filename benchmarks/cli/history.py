"""`dlscale history`: the studies of the same cells on the same kind of node over time, and where they changed."""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import click
from rich.console import Console

from dlscale.analysis.declare import Sentence, Table, brief
from dlscale.analysis.finding import Found, collect
from dlscale.analysis.findings.failures import of_one_fingerprint
from dlscale.analysis.findings.history import HISTORY, HistoryRow, on_screen
from dlscale.analysis.findings.history_plots import history_figures, history_findings
from dlscale.analysis.findings.past_studies import COMMIT, key_differences, past_study
from dlscale.analysis.measured import Measured, measure
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.records import start_time
from dlscale.analysis.render.data import study_json
from dlscale.analysis.render.grid import render_table
from dlscale.analysis.render.html.content import Page
from dlscale.analysis.render.html.document import write_page
from dlscale.analysis.render.html.page import looks, sections_of
from dlscale.analysis.text import EVIDENCE
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.browser import open_page
from dlscale.benchmarks.cli.options import json_option, results_option
from dlscale.benchmarks.cli.several_studies import FOLDER
from dlscale.benchmarks.records.expectations import PastStudy
from dlscale.benchmarks.records.files import load_records, uncollected
from dlscale.benchmarks.study.study_file import STUDY_FILE

PATTERNS = (
    f"*/*/{STUDY_FILE}",
    f"*/*/*/{STUDY_FILE}",
)  # of a results folder, and of a folder of such folders


@click.command()
@click.argument("study", required=False)
@results_option
@click.option(
    "--since", metavar="DATE", help="First day of the studies to read, as 2026-11-27; default: all."
)
@json_option
@click.option("--open", "in_browser", is_flag=True, help="Open the page in the browser, or print its link.")
def history(study: str | None, results: Path, since: str | None, as_json: bool, in_browser: bool) -> int:
    """Show the cells of STUDY (default: the latest) over all studies like it, and where they changed.

    Studies are alike if system, kind of node, seed and rules agree; software may change, and the history says where it
    did. They are those in the results folder and in results folders inside it, as a job every night makes
    (docs/jobs.md). A change is shown if it is larger than studies differ by themselves, corrected over all cells and
    dates (docs/metrics.md).

    Exit status: 2 if the newest study is worse than before, until --since leaves out what was before; 4 if there are
    fewer than four studies.

    \b
    Examples:
      dlscale history
      dlscale history weak-scaling --results nightly --since 2026-11-01
    """  # noqa: D301
    with uncollected():
        studies, newest, notes = read_history(results, study, since)
        gc.freeze()
        found = collect(history_findings(studies), newest)
        if as_json:
            click.echo(json.dumps(study_json(found) | {"left_out": notes}))
        else:
            rows: Sequence[HistoryRow] = found[0].finding.of(newest)
            _print(found, HISTORY.of(on_screen(rows)))
            path = _put(studies, found, rows, results / FOLDER)
            if in_browser:
                open_page(path)
    for note in notes:
        click.echo(f"left out: {note}", err=True)
    if len(studies) < 4:
        return INSUFFICIENT_DATA
    return FAILED_CASES if any(row.worse for row in found[0].finding.of(newest)) else 0


def read_history(
    results: Path, name: str | None, since: str | None
) -> tuple[list[PastStudy], Measured, list[str]]:
    """The studies of the history of a study, in order of time, the newest of them, and a line for each left out.

    Raises UsageError if there is none.
    """
    first = _day(since)
    read: list[tuple[PastStudy, Measured]] = []
    notes: list[str] = []
    for folder in _folders(results):
        try:
            past, study, note = read_past(folder, place=folder.relative_to(results).as_posix())
        except UsageError as error:
            notes.append(f"{folder}: {error}")
            continue
        notes += [note] if note else []
        if start_time(past.begun).date() >= first:
            read.append((past, study))
    read.sort(key=lambda pair: start_time(pair[0].begun))
    named = [pair for pair in read if name is None or pair[0].name.startswith(name)]
    if not named:
        known = ", ".join(dict.fromkeys(past.name for past, _ in read)) or "none"
        raise UsageError(
            f"no study {name or ''!r} with a good record in {results}; there are: {known}"
            + (f"; {notes[0]}" if notes else "")
        )
    last, newest = named[-1]
    alike = []
    others: dict[str, list[str]] = {}
    for past, _ in read:
        differences = key_differences(last.key, past.key)
        if not differences and not last.cells.keys() & past.cells.keys():
            differences = ["no cell in common"]
        if differences:
            others.setdefault(differences[0], []).append(past.place)
        elif past.begun <= last.begun:
            alike.append(past)
    notes += [
        f"{places[0]}{f' and {len(places) - 1} more' * (len(places) > 1)}, not like {last.place}: {difference}"
        for difference, places in others.items()
    ]
    return alike, newest, notes


def read_past(folder: Path, *, place: str) -> tuple[PastStudy, Measured, str]:
    """A study for a history, and a line about invalid records in it. Raises UsageError if it has no valid good one."""
    records, bad = load_records(folder)
    note = ""
    if bad:
        more = f" (and {len(bad) - 1} more such files)" if len(bad) > 1 else ""
        note = f"{bad[0].path}: {bad[0].reason}{more}"
        if not records:
            raise UsageError(note)
    records, _ = of_one_fingerprint(records)
    study = measure(records, name=folder.name)
    return past_study(study, place=place), study, note


def _folders(results: Path) -> list[Path]:
    """The studies in a folder of results, and in such folders inside it. Raises UsageError if there is none."""
    folders = sorted({path.parent for pattern in PATTERNS for path in results.glob(pattern)})
    if not folders:
        raise UsageError(f"no study in {results}; run one first, e.g.: dlscale run weak-scaling")
    return folders


def _day(text: str | None) -> date:
    """The day in a text; the first of all without one. Raises UsageError."""
    try:
        return date.fromisoformat(text) if text else date.min
    except ValueError:
        raise UsageError(f"--since {text}: a day such as 2026-11-27 is expected") from None


def _print(found: Sequence[Found], table: Table) -> None:
    """Sentences, and the rows that changed or, of many, those of throughput."""
    console = Console(highlight=False)
    for block in found[0].blocks:
        if isinstance(block, Sentence):
            console.print(block.text, markup=False, soft_wrap=True, style="bold" if block.strong else "")
    for part in render_table(brief(table)):
        console.print(part)


def _put(
    studies: Sequence[PastStudy], found: Sequence[Found], rows: Sequence[HistoryRow], folder: Path
) -> Path:
    """Write the page and its figures, and print where they are; returns the page's path."""
    from dlscale.analysis.figures.write import write_declared  # matplotlib is slow to load

    last = studies[-1]
    path = make_folder(folder) / f"history-{last.name}.html"
    origin = origin_of(studies)
    written = write_declared(history_figures(rows, origin), path.with_suffix(""), origin)
    if drawn := sum(file.suffix == ".png" for file in written):
        click.echo(f"figures: {drawn} in {path.with_suffix('')}")
    sections = tuple(sections_of(found))
    says = [block for block in found[0].blocks if isinstance(block, Sentence)]
    page = Page(
        title=f"{last.name.rpartition('-')[0] or last.name} on {last.key.get('system', '')} over time",
        facts=(("Studies", str(len(studies))), ("From", studies[0].begun[:10]), ("To", last.begun[:10])),
        evidence="; ".join(dict.fromkeys(EVIDENCE[row.evidence] for row in rows)),
        summary=tuple(sentence.text for sentence in says[:1]),
        strips=(),
        warnings=(),
        sections=sections,
        looks=looks(block for section in sections for block in section.blocks),
        origin=origin.short_line(),
    )
    write_page(page, path)
    click.echo(f"report: {path}\nopen: {path.resolve().as_uri()}")
    return path


def origin_of(studies: Sequence[PastStudy]) -> Provenance:
    """Where the numbers of a history come from."""
    hashes = "".join(study.data_hash for study in studies)
    return Provenance(
        studies=tuple(dict.fromkeys(study.name for study in studies)),
        systems=tuple(dict.fromkeys(str(study.key.get("system")) for study in studies)),
        commits=tuple(dict.fromkeys(str(study.facts.get(COMMIT)) for study in studies)),
        commands=(),
        data_hash=hashlib.sha256(hashes.encode()).hexdigest(),
    )
