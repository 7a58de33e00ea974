"""What a page says, without how it looks: sections of sentences, plots and tables, and the tags of filters.

Text is text as it came from records; whoever writes a page escapes it. Plots are curves, waterfalls and heat
maps as numbers and words. Numbers that a reader may want are in the tables' `data`, flat rows as in `--json`;
what is shown of them is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from dlscale.analysis.render.tables import NO_TAGS, Table, Tags
from dlscale.analysis.statistics import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """`lines` are told where somebody points at it: the value with its interval, and n. A `flagged` one has a ring."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    lines: tuple[str, ...] = ()
    flagged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one kind of evidence; a line joins them only if `joined`. `look` is a key of `Page.looks`."""

    name: str
    look: str
    evidence: str
    points: tuple[Point, ...]
    tags: Tags = NO_TAGS
    joined: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A reference line: at `y` everywhere, or through `points` (x, y)."""

    label: str
    y: float | None = None
    points: tuple[tuple[float, float], ...] = ()
    bound: bool = False  # nothing real lies above it


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`ticks` are (place, label); without any they follow from the values. `percent` shows a share in percent."""

    title: str
    kind: Literal["linear", "percent", "log", "time"] = "linear"
    ticks: tuple[tuple[float, str], ...] = ()
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """`says` is the plot in a sentence, for those who do not see it; `table` names the one with its numbers.

    `flag` is what a ring around a point means; empty where no point has one.
    """

    name: str
    title: str
    says: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    guides: tuple[Guide, ...] = ()
    notes: tuple[str, ...] = ()
    table: str = ""
    tags: Tags = NO_TAGS
    flag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A cause and what it costs: a share of the ideal speed, and milliseconds per step where they are known."""

    label: str
    share: Interval
    milliseconds: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """From ideal to measured for one backend on some ranks; the parts' centres add up to what is lost.

    `name` tells the backend with its options, `title` what was trained how. `largest` are the labels of the part that
    costs most and of those that are not told apart from it; none where nothing is lost for certain.
    """

    name: str
    title: str
    tags: Tags
    num_ranks: int
    evidence: str
    kept: Interval  # the efficiency, 1 is ideal
    parts: tuple[Part, ...]
    sentence: str  # what is kept, and what the largest loss is
    largest: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Ranks by windows. `values` are [rank][window], relative to the window's median over ranks: 1 is like others.

    NaN: not measured. `hosts` has a name per rank, `ranks` their numbers, and `late` the numbers of the late ones.
    """

    name: str
    title: str
    says: str
    values: tuple[tuple[float, ...], ...]
    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    late: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    tags: Tags = NO_TAGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Drawn beside each other, in one scale."""

    name: str
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Of a series; `dashes` are (on, off, ...) in line widths, empty for a solid line; `marker` is matplotlib's."""

    color: str
    marker: str
    dashes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence, or a short paragraph; `strong` where it must not be missed."""

    text: str
    strong: bool = False
    tags: Tags = NO_TAGS


Block: TypeAlias = Sentence | Plot | Table | HeatMap | Losses


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
