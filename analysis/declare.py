"""What a finding is made of: tables, plots and sentences, declared once and without looks.

A `TableOf` is the declaration of a table, beside the arithmetic of its finding; `of` makes the `Table` of some items.
Plots are curves, waterfalls and heat maps as numbers and words. Text is unescaped, as it came from records; who renders
it escapes it. Shown values are rounded; exact numbers are in the tables' `data`, the flat rows of `--json` and of the
page's downloads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from dlscale.analysis.families import Family
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import number, points, share_text, with_limits
from dlscale.benchmarks.records.record import Cell

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
class Point:
    """A point of a series, with limits of y and of x (`left`, `right`), where they are known.

    `lines` are its tooltip: value, interval, n; `label` stands beside it. A `flagged` point has a ring.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    left: float | None = None
    right: float | None = None
    label: str = ""
    lines: tuple[str, ...] = ()
    flagged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLine:
    """How one training is drawn: a thin line, the darker the higher its `shade` (0 to 1), with a mark at its `end`."""

    shade: float
    end: Literal["reached", "budget", "diverged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one kind of evidence; a line joins them only if `joined`.

    `look` is the name of its curve, which looks the same everywhere. The limits of points in a `band` are drawn as one
    area, else each as a bar. With `stairs` the line goes up at each point, and points have no markers.
    """

    name: str
    look: str
    evidence: str
    points: tuple[Point, ...]
    tags: Tags = NO_TAGS
    joined: bool = False
    band: bool = False
    stairs: bool = False
    training: TrainingLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A reference line: at `y` everywhere, or through `points` (x, y). Without a label it is no more than a line."""

    label: str
    y: float | None = None
    points: tuple[tuple[float, float], ...] = ()
    bound: bool = False  # an upper limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """What is known in words about a range of x and y, of figures in files: grey, behind the points, with `text`.

    None is the end of the axis. Where both ends of x or of y are equal, or with `rising`, it is a thick line from the
    first ends to the last.
    """

    x: tuple[float | None, float | None]
    y: tuple[float | None, float | None]
    text: str
    rising: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars behind the points of a plot, on an axis of their own: `heights` are (place, height) for each look.

    `width` is the factor between both sides of a bar; `asides` are factors on the places.
    """

    title: str
    label: str
    high: float
    width: float
    heights: Mapping[str, tuple[tuple[float, float], ...]]
    asides: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A bar at `x` whose parts, of these `heights`, lie on each other; `label` stands on top."""

    x: float
    heights: tuple[float, ...]
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis. `ticks` are (place, label), by default chosen from the values; `percent` shows a share in percent.

    The ticks of `names` name what stands at 0, 1, 2 ..., the first at the top.
    An axis without `numbers` has no ticks: nothing is known of its scale.
    """

    title: str
    kind: Literal["linear", "percent", "log", "time", "names"] = "linear"
    ticks: tuple[tuple[float, str], ...] = ()
    low: float | None = None
    high: float | None = None
    numbers: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot. `says` describes it in a sentence for screen readers; `table` names the table with its numbers.

    `flag` is the meaning of a ring around a point; empty if no point has one. `layers` are the names of the parts of
    `stacks`, from below.
    """

    name: str
    title: str
    says: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    guides: tuple[Guide, ...] = ()
    areas: tuple[Area, ...] = ()
    notes: tuple[str, ...] = ()
    table: str = ""
    tags: Tags = NO_TAGS
    flag: str = ""
    bars: Bars | None = None
    stacks: tuple[Stack, ...] = ()
    layers: tuple[str, ...] = ()


IN_TOTAL = "in total"  # the sum of all parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A cause and its cost: a share of the ideal speed, and milliseconds per step if known.

    Of a `bounded` one only an upper limit is known.
    """

    label: str
    share: Interval
    milliseconds: Interval | None = None
    bounded: bool = False

    @property
    def share_text(self) -> str:
        """`8.1 % [6.9, 9.3]`, or `at most 0.8 %`."""
        high = self.share.high if self.bounded else None
        return share_text(self.share) if high is None else f"at most {points(max(high, 0.0))} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The waterfall of one backend on one number of ranks; the parts' centres add up to the total loss.

    `name` is the backend with its options, `title` the training. `largest` are the labels of the largest part and of
    those not separable from it; none if no loss is certain. `separated`: it exceeds all other parts significantly.
    """

    name: str
    title: str
    tags: Tags
    num_ranks: int
    evidence: str
    kept: Interval  # the efficiency, 1 is ideal
    parts: tuple[Part, ...]
    sentence: str  # efficiency and largest loss
    largest: tuple[str, ...] = ()
    separated: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Ranks by windows. `values` are [rank][window], relative to the window's median over ranks.

    NaN is not measured. `hosts` has a name per rank, `ranks` their numbers; `late` are the numbers of stragglers,
    `slow_links` those of ranks behind a slow link. `launches` are (place, name, first window): in a figure all have the
    same width, and those of one place stand below each other.
    """

    name: str
    title: str
    says: str
    values: tuple[tuple[float, ...], ...]
    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    late: tuple[int, ...] = ()
    slow_links: tuple[int, ...] = ()
    launches: tuple[tuple[int, str, int], ...] = ()
    notes: tuple[str, ...] = ()
    tags: Tags = NO_TAGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Waterfalls drawn next to each other, in one scale."""

    name: str
    losses: tuple[Loss, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """Their sentences and notes, for renderers in words."""
        return tuple(dict.fromkeys(text for loss in self.losses for text in (loss.sentence, *loss.notes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Plots in a file of their own, as panels row by row, with the words about them and the `rows` of their CSV.

    A `warning` is to be read first; it may be empty. `brief` says for a printed caption what is shown.
    Panels have `shared` scales or each its own. Without `wide` it fits into one column of a page. `beside` it are rows
    of further CSV files, by name. Without panels there are only rows.
    """

    name: str
    title: str
    subtitle: str
    small_print: tuple[str, ...]
    panels: tuple[Plot, ...] | tuple[Loss, ...] | tuple[HeatMap, ...]
    rows: Sequence[Mapping[str, Any]]
    beside: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    warning: str = ""
    brief: str = ""
    wide: bool = True
    num_rows: int = 1
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence, or a short paragraph; `strong` where it must not be missed, `quiet` where it is small print."""

    text: str
    strong: bool = False
    quiet: bool = False
    tags: Tags = NO_TAGS


Block: TypeAlias = Sentence | Plot | Table | HeatMap | Losses
