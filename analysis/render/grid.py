"""Tables on a terminal, and what all tables in text have: titles of columns, and numbers in the place of notes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable

from dlscale.analysis.declare import Column, Table, Value, only

LONGEST_WORD = 14  # in a table that is too wide for its terminal


@dataclass(frozen=True, slots=True)
class Grid:
    """A table on a terminal. Numbers are never cut: if it is too wide, intervals go below their numbers.

    `sections` puts an empty line between groups of rows.
    """

    table: Table
    sections: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        wide, narrow = self._rich(), self._rich(narrow=True)
        unlimited = options.update(max_width=sys.maxsize)
        if console.measure(wide, options=unlimited).maximum <= options.max_width:
            yield wide
            return
        if console.measure(narrow, options=unlimited).minimum > options.max_width:
            narrow = self._rich(narrow=True, whole=False)
        yield Group("", narrow, "")

    def _rich(self, *, narrow: bool = False, whole: bool = True) -> RichTable:
        """`whole`: words of headings are not broken."""
        rich = RichTable(
            box=box.SIMPLE_HEAD, show_edge=not narrow, pad_edge=False, padding=(0, 0 if narrow else 1, 0, 0)
        )
        for column in self.table.columns:
            title = header(column, between="\n")
            rich.add_column(
                escape(title),
                justify="right" if column.numeric else "left",
                overflow="fold",
                min_width=max(map(len, title.split()), default=0) if whole else None,
            )
        for _, group in groupby(self.table.rows, key=lambda row: row.group):
            above: list[str] = []
            for row in group:
                texts = [value.text for value in row.values]
                cells = [
                    "" if self._repeats(texts, above, place) else texts[place] for place in range(len(texts))
                ]
                rich.add_row(*(escape(_broken(cell) if narrow else cell) for cell in cells))
                above = texts
            if self.sections:
                rich.add_section()
        return rich

    def _repeats(self, texts: Sequence[str], above: Sequence[str], place: int) -> bool:
        """Whether the names up to this one equal those of the row above and can be omitted."""
        before = self.table.columns[: place + 1]
        return not any(column.numeric for column in before) and texts[: place + 1] == list(above[: place + 1])


def _broken(text: str) -> str:
    """Intervals below their numbers, and long names broken where they have hyphens: no word is broken elsewhere."""
    words = text.replace(" [", "\n[").split(" ")
    return " ".join(
        word.replace("-", "-\n") if word[:1].isalpha() and len(word) > LONGEST_WORD else word
        for word in words
    )


def render_table(table: Table, *, caption: bool = True, legend: bool = True) -> Iterator[RenderableType]:
    """A table on a terminal, its notes and its legend; nothing without rows.

    Without `caption` the caller prints its own heading, which covers the `common` columns.
    """
    if not table.rows:
        return
    if caption:
        yield f"[bold]{escape(table.caption)}[/bold]"
    kept = [
        place
        for place, column in enumerate(table.columns)
        if not column.detail and (caption or not column.common)
    ]
    notes: dict[str, int] = {}
    yield Grid(numbered(only(table, kept), notes))
    for note, mark in notes.items():
        yield f"{mark:>2}  {escape(note)}"
    if notes:
        yield ""
    if legend:
        yield from render_legend(table.legend)


def render_legend(legend: str) -> Iterator[RenderableType]:
    """Small print below a table."""
    if legend:
        yield f"[dim]{escape(legend)}[/dim]"
        yield ""


def header(column: Column[Any], *, between: str = " ") -> str:
    """A column's label with its unit, such as `power [W]`."""
    return f"{column.label}{between}[{column.unit}]" if column.unit else column.label


def numbered(table: Table, notes: dict[str, int], *, between: str = " ") -> Table:
    """The table with numbers in place of notes; adds the number of each note to `notes`."""

    def mark(value: Value) -> Value:
        if not value.notes:
            return value
        return Value(text=between.join(str(notes.setdefault(note, len(notes) + 1)) for note in value.notes))

    return replace(table, rows=tuple(replace(row, values=tuple(map(mark, row.values))) for row in table.rows))
