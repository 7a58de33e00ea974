"""What a finding says in words and numbers: tables and sentences, declared once and without looks.

A `TableOf` is the declaration of a table, beside the arithmetic of its finding; `of` makes the `Table` of some items.
Text is unescaped, as it came from records; who renders it escapes it. Shown values are rounded; exact numbers are in
the tables' `data`, the flat rows of `--json` and of the page's downloads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

from dlscale.analysis.families import Family
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import number, with_limits
from dlscale.benchmarks.records.cell import Cell

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
    """The table without empty columns, and without `common` columns of equal values, which the caption names.

    Of a detail it names what most rows have, and only the others say what they have.
    """
    if not table.rows:
        return table
    texts = [[row.values[place].text for row in table.rows] for place in range(len(table.columns))]
    usual: dict[int, str] = {}
    for place, column in enumerate(table.columns):
        text, count = Counter(texts[place]).most_common(1)[0]
        enough = len(table.rows) / 2 if column.detail else len(table.rows) - 1
        if column.common and count > enough:
            usual[place] = text
    named = [text if len({*texts[place]}) == 1 else f"{text} unless stated" for place, text in usual.items()]
    caption = ": ".join(filter(None, (table.caption, ", ".join(filter(None, named)))))
    rows = tuple(
        replace(
            row,
            values=tuple(
                Value(text="") if value.text == usual.get(place) else value
                for place, value in enumerate(row.values)
            ),
        )
        for row in table.rows
    )
    left = [place for place in range(len(table.columns)) if any(row.values[place].text for row in rows)]
    return only(replace(table, caption=caption, rows=rows), left)


def only(table: Table, places: Sequence[int]) -> Table:
    """The table with the columns at these places."""
    return replace(
        table,
        columns=tuple(table.columns[place] for place in places),
        rows=tuple(replace(row, values=tuple(row.values[place] for place in places)) for row in table.rows),
    )


def brief(table: Table, *, without: Collection[str] = ()) -> Table:
    """The table without details, without columns that a heading repeats, and without the columns of these labels."""
    return only(
        table,
        [
            place
            for place, column in enumerate(table.columns)
            if not column.detail and not column.common and column.label not in without
        ],
    )


def tags_of(cell: Cell) -> Tags:
    """The filter tags of a cell."""
    return Tags(workload=cell.workload, framework=cell.framework, backend=cell.backend)


def family_tags(family: Family) -> Tags:
    """The filter tags of all backends of a training."""
    return Tags(workload=family.workload, framework=family.framework)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence, or a short paragraph; `strong` where it must not be missed, `quiet` where it is small print."""

    text: str
    strong: bool = False
    quiet: bool = False
    tags: Tags = NO_TAGS
