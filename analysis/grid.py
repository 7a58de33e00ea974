"""A table for the terminal that never cuts a number: where it would be too wide, intervals go below."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.table import Table

# Columns that are not numbers.
WORDS = (
    "backend",
    "notes",
    "exchange",
    "compared with",
    "framework",
    "script",
    "counted",
    "part of the loss",
    "contrast",
    "verdict",
)


@dataclass(frozen=True, slots=True)
class Grid:
    """Sections of rows of cells under named columns; an interval is what follows " [" in a cell."""

    columns: Sequence[str]
    sections: Sequence[Sequence[tuple[str, ...]]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        wide = self._table(narrow=False)
        unlimited = options.update(max_width=sys.maxsize)
        fits = console.measure(wide, options=unlimited).maximum <= options.max_width
        yield wide if fits else Group("", self._table(narrow=True), "")

    def _table(self, *, narrow: bool) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD, show_edge=not narrow, pad_edge=False, padding=(0, 0 if narrow else 1, 0, 0)
        )
        for name in self.columns:
            table.add_column(escape(name), justify="left" if name in WORDS else "right", overflow="fold")
        for section in self.sections:
            for cells in section:
                table.add_row(*(escape(cell.replace(" [", "\n[") if narrow else cell) for cell in cells))
            table.add_section()
        return table
