"""The content of a page, without its looks: sections of sentences, plots and tables, and filter tags.

Text is unescaped, as it came from records; the writer of a page escapes it. Plots are curves, waterfalls and heat
maps as numbers and words. Exact numbers are in the tables' `data`, flat rows as in `--json`; shown values are
rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dlscale.analysis.render.tables import NO_TAGS, Table, Tags
from dlscale.analysis.statistics import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a series. `lines` are its tooltip: value, interval, n. A `flagged` point has a ring."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    lines: tuple[str, ...] = ()
    flagged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one kind of evidence; a line joins them only if `joined`. `look` is a key of `Page.looks`.

    The limits of points in a `band` are drawn as one area, else each as a bar.
    """

    name: str
    look: str
    evidence: str
    points: tuple[Point, ...]
    tags: Tags = NO_TAGS
    joined: bool = False
    band: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A reference line: at `y` everywhere, or through `points` (x, y)."""

    label: str
    y: float | None = None
    points: tuple[tuple[float, float], ...] = ()
    bound: bool = False  # an upper limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis. `ticks` are (place, label), by default chosen from the values; `percent` shows a share in percent."""

    title: str
    kind: Literal["linear", "percent", "log", "time"] = "linear"
    ticks: tuple[tuple[float, str], ...] = ()
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot. `says` describes it in a sentence for screen readers; `table` names the table with its numbers.

    `flag` is the meaning of a ring around a point; empty if no point has one.
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
    """A cause and its cost: a share of the ideal speed, and milliseconds per step if known."""

    label: str
    share: Interval
    milliseconds: Interval | None = None


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

    NaN is not measured. `hosts` has a name per rank, `ranks` their numbers, and `late` the numbers of stragglers.
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
    """Waterfalls drawn next to each other, in one scale."""

    name: str
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The look of a series; `dashes` are (on, off, ...) in line widths, empty if solid; `marker` is matplotlib's."""

    color: str
    marker: str
    dashes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence, or a short paragraph; `strong` where it must not be missed."""

    text: str
    strong: bool = False
    tags: Tags = NO_TAGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """A slider over the `count` values of an axis; it begins at value number `asked`."""

    name: str
    label: str
    count: int
    asked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A prediction that sliders move; `data` is the grid as the page's script reads it (`what_if.js`)."""

    title: str
    evidence: str
    sliders: tuple[Slider, ...]
    data: Mapping[str, Any]
    origin: str


Block: TypeAlias = Sentence | Plot | Table | HeatMap | Losses | WhatIf


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment of a strip, in percent of the ideal speed. `says` is its tooltip."""

    begin: float
    width: float
    says: str
    largest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The ideal speed from 0 to 100 %: the first segment is kept, the others are lost; with a description."""

    name: str
    kept: str
    cause: str  # the largest loss
    certain: bool
    segments: tuple[Segment, ...]
    tags: Tags = NO_TAGS


Verdict = Literal["pass", "not met", "not applicable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One of the 12 rules, the verdict, and the facts behind it."""

    number: int
    text: str
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the page. `name` is unique; a `folded` section is initially closed."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    lead: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole page. `facts` are (name, value), shown below the title; `summary` has at most three sentences."""

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
