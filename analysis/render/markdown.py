"""Findings as GitHub markdown: numbers with intervals and n, sentences, all failures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from dlscale.analysis.declare import Sentence, Table
from dlscale.analysis.finding import Found
from dlscale.analysis.plots import Losses
from dlscale.analysis.render.grid import header, numbered

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


def study_markdown(found: Iterable[Found], *, origin: str) -> str:
    """All sentences and tables of all findings, and the origin of the numbers."""
    lines: list[str] = []
    for one in found:
        blocks = [block for block in one.blocks if isinstance(block, Sentence | Table | Losses)]
        if blocks:
            lines += [f"## {escape_markdown(one.finding.title)}", ""]
        for block in blocks:
            lines += _lines(block)
    lines += [escape_markdown(f"Origin: {origin}."), ""]
    return "\n".join(lines).rstrip() + "\n"


def _lines(block: Sentence | Table | Losses) -> Iterator[str]:
    if isinstance(block, Losses):
        for text in block.texts:
            yield from (escape_markdown(text), "")
        return
    if isinstance(block, Sentence):
        text = escape_markdown(block.text)
        yield from ((f"**{text}**" if block.strong else text), "")
        return
    yield from (f"### {escape_markdown(block.caption)}", "")
    yield from table_markdown(block)
    if block.legend:
        yield from (escape_markdown(block.legend), "")
