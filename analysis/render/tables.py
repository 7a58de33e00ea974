"""A table, declared once: its columns, how each shows an item, the flat row of data behind it, and its legend.

A `TableOf` is the declaration, beside the arithmetic of its finding; `of` makes the `Table` of some items. Renderers
see only tables: `render_table` here for terminals, `markdown` and `html` in their modules. Shown values are rounded;
`data` is the row of `--json` and of the page's downloads.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Generic, TypeAlias, TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable

from dlscale.analysis.families import Family
from dlscale.analysis.render.text import backend_name, number, with_limits
from dlscale.analysis.statistics import Interval
from dlscale.benchmarks.records.record import Cell
from dlscale.models import NAMES, load_workload

T = TypeVar("T")
Datum: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """Values that the page's filters match. An empty tag matches every choice; several are separated by spaces."""

    workload: str = ""
    framework: str = ""
    backend: str = ""


NO_TAGS = Tags()


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The text in a table's cell, and its sort key if that is not the text itself.

    `notes` are sentences: the page shows them in the cell; narrower renderers number them and print each once below
    the table.
    """

    text: str
    order: float | None = None
    notes: tuple[str, ...] = ()


NOTHING = Value(text="-")
Shown: TypeAlias = Value | Interval | str | float | None  # what a column makes of an item


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row's shown values and downloaded data; rows of one `group` are kept together."""

    values: tuple[Value, ...]
    data: dict[str, Datum]
    tags: Tags = NO_TAGS
    strong: bool = False  # to be seen first
    group: Hashable = None


@dataclass(frozen=True)  # a generic class with slots cannot be subscripted in Python 3.11
class Column(Generic[T]):
    """`show` says what an item has in this column; intervals and numbers get three digits."""

    label: str
    show: Callable[[T], Shown]
    unit: str = ""
    numeric: bool = True  # to the right
    detail: bool = False  # left out on terminals, which are narrow
    common: bool = False  # moves to the caption where all rows have the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`name` is unique on the page, and begins the downloaded file's name."""

    name: str
    caption: str
    columns: tuple[Column[Any], ...]
    rows: tuple[Row, ...]
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class TableOf(Generic[T]):
    """The declaration of a table of items."""

    name: str
    caption: str
    columns: tuple[Column[T], ...]
    data: Callable[[T], Mapping[str, Any]]
    legend: str = ""
    tags: Callable[[T], Tags] = lambda _: NO_TAGS
    strong: Callable[[T], bool] = lambda _: False
    group: Callable[[T], Hashable] = lambda _: None

    def of(self, items: Iterable[T]) -> Table:
        """The table of these items, without columns that are empty or the same in all rows."""
        rows = tuple(
            Row(
                values=tuple(shown(column.show(item)) for column in self.columns),
                data=flat(self.data(item)),
                tags=self.tags(item),
                strong=self.strong(item),
                group=self.group(item),
            )
            for item in items
        )
        return _trimmed(
            Table(name=self.name, caption=self.caption, columns=self.columns, rows=rows, legend=self.legend)
        )


def shown(value: Shown) -> Value:
    """The value of a cell; "-" for None and for numbers that are not finite."""
    if isinstance(value, Value):
        return value
    if isinstance(value, str):
        return Value(text=value)
    if isinstance(value, Interval):
        return shown_interval(value, number)
    return shown_number(value, number)


def shown_number(value: float | None, write: Callable[[float], str]) -> Value:
    """A number as a value, formatted by `write`."""
    known = finite(value)
    return NOTHING if known is None else Value(text=write(known), order=known)


def shown_interval(interval: Interval | None, write: Callable[[float], str]) -> Value:
    """An interval as a value, formatted by `write` and sorted by its centre."""
    text = with_limits(interval, write)
    return NOTHING if interval is None else Value(text=text, order=finite(interval.center))


def finite(value: float | None) -> float | None:
    """The number, or None if it is not finite."""
    return value if value is not None and math.isfinite(value) else None


def flat(row: Mapping[str, Any]) -> dict[str, Datum]:
    """A row for CSV and JSON: lists become text, values that are not finite become empty."""
    return {
        name: "; ".join(map(str, value))
        if isinstance(value, list)
        else finite(value)
        if isinstance(value, float)
        else value
        for name, value in row.items()
    }


def _trimmed(table: Table) -> Table:
    """The table without empty columns, and without `common` columns of equal values, which the caption names."""
    if not table.rows:
        return table
    places = range(len(table.columns))
    same = [
        place
        for place in places
        if table.columns[place].common and len({row.values[place].text for row in table.rows}) == 1
    ]
    empty = [place for place in places if not any(row.values[place].text for row in table.rows)]
    setting = ", ".join(table.rows[0].values[place].text for place in same)
    kept = _only(table, [place for place in places if place not in {*same, *empty}])
    return replace(kept, caption=f"{table.caption}: {setting}" if setting else table.caption)


def _only(table: Table, places: Sequence[int]) -> Table:
    return replace(
        table,
        columns=tuple(table.columns[place] for place in places),
        rows=tuple(replace(row, values=tuple(row.values[place] for place in places)) for row in table.rows),
    )


def brief(table: Table, *, without: Collection[str] = ()) -> Table:
    """The table without details, without columns that a heading repeats, and without the columns of these labels."""
    return _only(
        table,
        [
            place
            for place, column in enumerate(table.columns)
            if not column.detail and not column.common and column.label not in without
        ],
    )


CONTROL_NAMES = {
    "train": "",
    "synthetic": "synthetic data",
    "loader": "loader only",
    "exchange": "communication only",
    "alone": "alone",
    "profile": "profile",
    "whole_machine": "whole machine",
    "canary": "canary",
}


def workload_title(name: str) -> str:
    """`ResNet-50` for `resnet50`; unknown names are unchanged."""
    return load_workload(name).title if name in NAMES else name


def cell_name(cell: Cell, evidence: str | None) -> str:
    """The backend, with its control and kind of evidence where unusual."""
    kind = "" if evidence in (None, "measured") else str(evidence)
    return ", ".join(filter(None, (backend_name(cell), CONTROL_NAMES[cell.control], kind)))


def tags_of(cell: Cell) -> Tags:
    """The filter tags of a cell."""
    return Tags(workload=cell.workload, framework=cell.framework, backend=cell.backend)


def training_columns(family: Callable[[T], Family]) -> tuple[Column[T], Column[T]]:
    """Columns that say what was trained, and how."""

    def name(item: T) -> str:
        trained = family(item)
        return f"{workload_title(trained.workload)} {trained.preset}, {trained.framework}"

    def mode(item: T) -> str:
        return f"{family(item).scaling_mode}, {family(item).constants}"

    return (
        Column("training", name, numeric=False, common=True),
        Column("mode", mode, numeric=False, detail=True, common=True),
    )


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


@dataclass(frozen=True, slots=True)
class Grid:
    """A table on a terminal. Numbers are never cut: if it is too wide, intervals go below their numbers.

    `sections` puts an empty line between groups of rows.
    """

    table: Table
    sections: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        wide = self._rich(narrow=False)
        unlimited = options.update(max_width=sys.maxsize)
        fits = console.measure(wide, options=unlimited).maximum <= options.max_width
        yield wide if fits else Group("", self._rich(narrow=True), "")

    def _rich(self, *, narrow: bool) -> RichTable:
        rich = RichTable(
            box=box.SIMPLE_HEAD, show_edge=not narrow, pad_edge=False, padding=(0, 0 if narrow else 1, 0, 0)
        )
        for column in self.table.columns:
            rich.add_column(
                escape(header(column, between="\n")),
                justify="right" if column.numeric else "left",
                overflow="fold",
            )
        for _, group in groupby(self.table.rows, key=lambda row: row.group):
            above: list[str] = []
            for row in group:
                texts = [value.text for value in row.values]
                cells = [
                    "" if self._repeats(texts, above, place) else texts[place] for place in range(len(texts))
                ]
                rich.add_row(*(escape(cell.replace(" [", "\n[") if narrow else cell) for cell in cells))
                above = texts
            if self.sections:
                rich.add_section()
        return rich

    def _repeats(self, texts: Sequence[str], above: Sequence[str], place: int) -> bool:
        """Whether the names up to this one equal those of the row above and can be omitted."""
        before = self.table.columns[: place + 1]
        return not any(column.numeric for column in before) and texts[: place + 1] == list(above[: place + 1])


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
    yield Grid(numbered(_only(table, kept), notes))
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
