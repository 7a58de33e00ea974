"""What a page says, without saying how it looks: sections of sentences, plots and tables.

Text is text as it came from records; whoever writes a page escapes it. Numbers that a reader may want are in the
tables' `data`, flat rows as in `--json`; what is shown of them is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from dlscale.analysis.page.plot_model import NO_TAGS, HeatMap, Look, Losses, Plot, Tags

Datum: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What stands in a table's cell, and what it is sorted by where that is not the text itself."""

    text: str
    order: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Of a table: what is shown, and what is downloaded."""

    values: tuple[Value, ...]
    data: dict[str, Datum]
    tags: Tags = NO_TAGS
    strong: bool = False  # to be seen first


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`unit` may be empty; numbers stand to the right."""

    label: str
    unit: str = ""
    numeric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`name` is unique on the page, and begins the downloaded file's name."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A sentence, or a short paragraph; `strong` where it must not be missed."""

    text: str
    strong: bool = False
    tags: Tags = NO_TAGS


Block: TypeAlias = Text | Plot | Table | HeatMap | Losses


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Of a strip, in percent of the ideal speed. `says` is told where somebody points at it."""

    begin: float
    width: float
    says: str
    largest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The ideal speed from 0 to 100 %: the first segment is kept, the others are lost; and the same in words."""

    name: str
    kept: str
    cause: str  # what most is lost to
    certain: bool
    segments: tuple[Segment, ...]
    tags: Tags = NO_TAGS


Verdict = Literal["pass", "not met", "not applicable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One of the 12, what was found, and from which facts."""

    number: int
    text: str
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """`name` is unique on the page; a section that is `folded` is opened by who wants it."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    lead: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The whole of it. `facts` are (what, which), said below the title; `summary` holds at most three sentences."""

    title: str
    facts: tuple[tuple[str, str], ...]
    evidence: str
    summary: tuple[str, ...]
    strips: tuple[Strip, ...]  # where the speed goes, at a glance
    warnings: tuple[tuple[str, str], ...]  # (sentence, the section that has more)
    first: tuple[Block, ...]
    sections: tuple[Section, ...]
    rules: tuple[Rule, ...]
    looks: dict[str, Look]
    origin: str  # where the numbers come from, in one line
