"""A study's table as GitHub markdown: numbers with intervals and n, a sentence per backend, all failures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from dlscale.analysis.declare import Table, header, numbered
from dlscale.analysis.efficiency import SCALING, ScalingRow, ScalingTable, input_cost
from dlscale.analysis.families import Family
from dlscale.analysis.findings.energy import energy_table
from dlscale.analysis.findings.predicted_points import PREDICTED_POINTS, SimulatedPoint, lead_sentences
from dlscale.analysis.records import why_unusable
from dlscale.analysis.render.terminal_table import efficiency_summary
from dlscale.analysis.text import backend_name
from dlscale.benchmarks.records.files import BadFile

WORDS = ("backend", "notes")  # columns that are not numbers
# Emphasis, code, HTML, tables, mathematics, entities and links, but not an interval in brackets.
_MARKUP = re.compile(r"([\\`*<|~$]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|\](?=[(\[:]))")


def escape_markdown(text: str) -> str:
    """Text from records with all markup escaped, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, words: Sequence[str] = WORDS
) -> list[str]:
    """The lines of a table of plain text; columns that are not in `words` are right-aligned."""
    lines = ["| " + " | ".join(map(escape_markdown, columns)) + " |"]
    lines.append("| " + " | ".join("---" if name in words else "---:" for name in columns) + " |")
    return lines + ["| " + " | ".join(map(escape_markdown, cells)) + " |" for cells in rows]


def table_markdown(table: Table) -> Iterator[str]:
    """The lines of a table with its notes below; nothing without rows."""
    if not table.rows:
        return
    notes: dict[str, int] = {}
    rows = [[value.text for value in row.values] for row in numbered(table, notes, between=", ").rows]
    names = [header(column) for column in table.columns]
    words = [header(column) for column in table.columns if not column.numeric]
    yield from markdown_table(names, rows, words=words)
    yield ""
    yield from (f"{mark}. {escape_markdown(note)}" for note, mark in notes.items())
    if notes:
        yield ""


def study_markdown(
    table: ScalingTable, *, bad_files: Sequence[BadFile] = (), left_out: Sequence[str] = ()
) -> str:
    """The terminal's main table and all problems; `left_out` names the records that are not in it, with reasons."""
    lines: list[str] = []
    for family in table.families:
        lines += _family(table.of(family), family)
    lines += (
        [escape_markdown(SCALING.legend), ""]
        if table.rows
        else ["No records: nothing has been measured yet.", ""]
    )
    lines += _predicted(table.predicted)
    if (energy := energy_table(table.energies)).rows:
        lines += [f"### {escape_markdown(energy.caption)}", "", *table_markdown(energy)]
    lines += _problems(table, bad_files, left_out)
    if table.rows:
        lines += [escape_markdown(f"Origin: {table.provenance.short_line()}."), ""]
    return "\n".join(lines).rstrip() + "\n"


def _family(rows: Sequence[ScalingRow], family: Family) -> Iterator[str]:
    yield f"### {escape_markdown(family.title)}"
    yield ""
    yield escape_markdown(family.constants)
    yield ""
    if pair := rows[0].pair:
        yield escape_markdown(pair.verdict) if pair.comparable else f"**{escape_markdown(pair.verdict)}**"
        yield ""
    yield from table_markdown(SCALING.of(rows))
    groups = groupby(rows, key=lambda row: (row.cell.control, backend_name(row.cell), row.evidence))
    for sentence in filter(
        None, [*(efficiency_summary(list(group)) for _, group in groups), *map(input_cost, rows)]
    ):
        yield f"* {escape_markdown(sentence)}"
    yield ""


def _predicted(points: Sequence[SimulatedPoint]) -> Iterator[str]:
    """Predictions by themselves, with how wrong they are where something is measured."""
    predicted = PREDICTED_POINTS.of(points)
    if predicted.rows:
        yield f"### {escape_markdown(predicted.caption)}"
        yield ""
        yield from table_markdown(predicted)
        yield from (f"* {escape_markdown(sentence)}" for sentence in lead_sentences(points))
        yield ""
        yield escape_markdown(predicted.legend)
        yield ""


def _problems(table: ScalingTable, bad_files: Sequence[BadFile], left_out: Sequence[str]) -> Iterator[str]:
    failures = [
        f"{record.case.id}, attempt {record.attempt}: {why_unusable(record)}" for record in table.failures
    ]
    for title, texts in (
        ("Drift of the nodes while jobs ran", [drift.text for drift in table.drifts]),
        ("Failed launches", failures),
        ("Left out", left_out),
        ("Files that are not records", [f"{bad.path.name}: {bad.reason}" for bad in bad_files]),
    ):
        if texts:
            yield f"### {title}"
            yield ""
            yield from (f"* {escape_markdown(text)}" for text in texts)
            yield ""
