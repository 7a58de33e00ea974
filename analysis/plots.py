"""What a finding draws: curves, waterfalls and heat maps as numbers and words, without looks, and figures of them.

As in `declare`, text is unescaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from dlscale.analysis.declare import NO_TAGS, Sentence, Table, Tags
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import points, share_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a series, with limits of y and of x (`left`, `right`), where they are known.

    `lines` are its tooltip: value, interval, n; `label` stands beside it.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    left: float | None = None
    right: float | None = None
    label: str = ""
    lines: tuple[str, ...] = ()


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

    `layers` are the names of the parts of `stacks`, from below.
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

    NaN is not measured. `hosts` has a name per rank, `ranks` their numbers; `late` are the numbers of stragglers.
    `launches` are (place, name, first window): in a figure all have the
    same width, and those of one place stand below each other.
    """

    name: str
    title: str
    says: str
    values: tuple[tuple[float, ...], ...]
    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    late: tuple[int, ...] = ()
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
    Panels have `shared` scales or each its own. Without `wide` it fits into one column of a page; a `small` one shows
    so little that its panels are as low as their words allow. `beside` it are rows of further CSV files, by name.
    Without panels there are only rows.
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
    small: bool = False
    num_rows: int = 1
    shared: bool = False


Block: TypeAlias = Sentence | Plot | Table | HeatMap | Losses  # what a section is made of
