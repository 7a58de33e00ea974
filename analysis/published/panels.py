"""A panel of a published figure: published values, what is said in words, what is predicted, and our points.

`content_of` collects them in the quantity's unit, `plot_of` declares the plot. Axes have a title even where it is
empty; the catalogue gives their range, which grows with what is ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dlscale.analysis.declare import Tags
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Area, Axis, Guide, Plot, Point, Series
from dlscale.analysis.published.catalogue import Figure, Panel, Published
from dlscale.analysis.published.ours import OwnPoint, own_points
from dlscale.analysis.published.predictions import PredictedCurve
from dlscale.analysis.published.reference import ReferenceRow
from dlscale.analysis.published.values import HALF_WIDTH, PLACES, RATIOS, Statement, Value

PUBLISHED, SIMULATED = "published", "simulated"
NOT_PUBLISHED = "published only as a picture"
MIN_VALUES = 3  # for a curve to be drawn in full
_ASIDE_OCTAVES, _ASIDE_SHARE = 0.2, 0.06  # of a linear axis
_OCTAVE_MARGIN = 0.45
_CLOSE = 1.45  # tick labels closer than this factor overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A published value, or a number in words at one place. `x` is None where the publication does not give it."""

    label: str  # in the legend
    x: float | None
    y: float  # in the panel's unit, like all below
    half_width: float | None = None  # as published
    value: Value | None = None
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A statement with a quantity or a place; a None in `low` or `high` is an open end."""

    statement: Statement
    low: float | None
    high: float | None

    @property
    def one_number(self) -> bool:
        """Whether it is one number at one place."""
        one_place = self.statement.x_low is not None and self.statement.x_low == self.statement.x_high
        return one_place and self.low is not None and self.low == self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What belongs in one panel."""

    figure: Figure
    panel: Panel
    marks: tuple[Mark, ...]
    stated: tuple[Stated, ...]
    ours: tuple[OwnPoint, ...]
    predicted: tuple[PredictedCurve, ...]
    reference: tuple[ReferenceRow, ...] = ()

    @property
    def in_full(self) -> bool:
        """Whether the values of the publication's curve are public."""
        return len(self.marks) >= MIN_VALUES

    @property
    def empty(self) -> bool:
        """Whether the panel has only axes."""
        return not (self.marks or self.stated or self.ours or self.predicted or self.reference)

    @property
    def said(self) -> list[Mark]:
        """The statements that are one number at one place."""
        figure = self.figure
        return [
            Mark(
                label=figure.label(one.statement.series),
                x=one.statement.x_low,
                y=one.high or 0.0,
                words=one.statement.label,
            )
            for one in self.stated
            if one.one_number
        ]

    @property
    def curves(self) -> list[list[Mark]]:
        """The values of each published series in the order of x, those without an x last, and each number in words."""
        by_series: dict[str, list[Mark]] = {}
        for mark in self.marks:
            by_series.setdefault(mark.value.series if mark.value else "", []).append(mark)
        order = [
            sorted(marks, key=lambda mark: math.inf if mark.x is None else mark.x)
            for marks in by_series.values()
        ]
        return order + [[mark] for mark in self.said]

    @property
    def places(self) -> list[float]:
        """All x of what is ours, measured or predicted."""
        own = [*(point.x for point in self.ours), *(row.x for row in self.reference)]
        return own + [x for curve in self.predicted for x, _ in curve.points]

    @property
    def heights(self) -> list[float]:
        """All y that must be visible."""
        heights = [end for one in self.stated for end in (one.low, one.high)]
        heights += [mark.y + side * (mark.half_width or 0.0) for mark in self.marks for side in (-1, 1)]
        ends = [end for each in self.ours for end in (each.value.center, each.value.low, each.value.high)]
        ends += [end for curve in self.predicted for _, band in curve.points for end in (band.low, band.high)]
        unit = self.panel.unit
        heights += [row.in_unit(end, unit) for row in self.reference for end in (row.y, row.low, row.high)]
        return [*_known(heights), *(end / unit for end in _known(ends))]


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def content_of(
    published: Published,
    figure: Figure,
    studies: Sequence[Measured] = (),
    *,
    stand_in: str | None = None,
    predicted: Sequence[PredictedCurve] = (),
) -> list[Content]:
    """The content of each panel, with our points and the curves of `predicted` that belong there."""
    return [
        Content(
            figure=figure.along(panel),
            panel=panel,
            marks=tuple(_marks(published, figure, panel)),
            stated=tuple(_stated(published, figure, panel)),
            ours=tuple(
                own_points(figure, figure.own.narrowed(panel.own), panel.layout, studies, stand_in=stand_in)
                if figure.own and not panel.reference
                else ()
            ),
            predicted=tuple(
                curve for curve in predicted if (curve.figure, curve.panel) == (figure.id, index)
            ),
            reference=published.reference_rows(figure, panel),
        )
        for index, panel in enumerate(figure.panels)
    ]


def _marks(published: Published, figure: Figure, panel: Panel) -> Iterator[Mark]:
    rows = [row for row in published.values_of(figure.id) if panel.holds(row.series)]
    widths = {(row.series, row.x): row.y for row in rows if row.quantity == panel.layout + HALF_WIDTH}
    for row in rows:
        if row.quantity == panel.layout:
            width = widths.get((row.series, row.x))
            yield Mark(
                value=row,
                label=figure.label(row.series),
                x=row.x,
                y=row.y / panel.unit,
                half_width=None if width is None else width / panel.unit,
            )


def _stated(published: Published, figure: Figure, panel: Panel) -> Iterator[Stated]:
    for statement in published.statements_of(figure.id):
        elsewhere = statement.x_unit and statement.x_unit != figure.x_unit
        if not statement.label or not panel.holds(statement.series) or elsewhere:
            continue
        if statement.quantity not in (panel.layout, *PLACES):
            continue
        if statement.quantity == "linear" and panel.layout not in RATIOS:
            continue
        low, high = (None if end is None else end / panel.unit for end in statement.ends)
        yield Stated(statement=statement, low=low, high=high)


def plot_of(content: Content, among: Sequence[Content]) -> Plot:
    """The panel as a plot; `among` are the figure's panels, of which those of the same quantity share a scale."""
    figure, panel = content.figure, content.panel
    own = (panel.reference, panel.x_axis)
    among = [peer for peer in among if (peer.panel.reference, peer.panel.x_axis) == own]
    x = _x_axis(figure, among)
    return Plot(
        name=panel.layout,
        title=": ".join(filter(None, ("measured here" if panel.reference else "", panel.title))),
        says=NOT_PUBLISHED,
        x=x,
        y=_y_axis(content, [peer for peer in among if peer.panel.layout == panel.layout]),
        series=(
            *_published_series(content),
            *_predicted_series(content, among),
            *_own_series(content),
            *_reference_series(content),
        ),
        guides=tuple(_guides(content, (x.low or 0.0, x.high or 1.0))),
        areas=tuple(_areas(content)),
    )


def _published_series(content: Content) -> Iterator[Series]:
    """A series per published curve, or one of all works that are named beside their points."""
    if content.figure.named_points:
        points = [
            Point(x=mark.x, y=mark.y, label=mark.value.series.replace(" et al.", ""))
            for mark in content.marks
            if mark.x is not None and mark.value
        ]
        look = "a publication"
        yield Series(name=look, look=look, evidence=PUBLISHED, points=tuple(points), tags=Tags(backend=look))
        return
    written: set[str] = set()
    for marks in content.curves:
        label = marks[0].label
        points = [_point(mark, content) for mark in marks if mark.x is not None]
        if points:
            words = "" if marks[0].words in written else marks[0].words
            yield Series(
                name=label,
                look=label,
                evidence=PUBLISHED,
                points=(replace(points[0], label=words), *points[1:]),
                tags=_published_tags(label),
                joined=_joined(marks, content.panel),
            )
        written.add(marks[0].words)


def _point(mark: Mark, content: Content) -> Point:
    places = [(peer.x, peer.label) for peer in (content.marks if mark.value else content.said)]
    half, x = mark.half_width, _aside(mark.x or 0.0, mark.label, places, content)
    low, high = (None, None) if half is None else (mark.y - half, mark.y + half)
    return Point(x=x, y=mark.y, low=low, high=high)


def _published_tags(label: str) -> Tags:
    """Tags that no backend of ours has: a published series gets a look that is left."""
    return Tags(backend=f"published {label}")


def _aside(x: float, label: str, places: Sequence[tuple[float | None, str]], content: Content) -> float:
    """x, shifted from that of others at the same of all `places`, so that their markers do not overlap."""
    here = [its_label for its_x, its_label in places if its_x == x]
    steps = here.index(label) - (len(here) - 1) / 2 if content.panel.aside else 0.0
    first, last = content.figure.x_range
    along = content.figure.x_scale == "linear"
    return x + steps * _ASIDE_SHARE * (last - first) if along else float(x * 2.0 ** (_ASIDE_OCTAVES * steps))


def _joined(marks: Sequence[Mark], panel: Panel) -> bool:
    """Whether a line may join the marks: two or more of one mode, with increasing x."""
    modes = {(mark.value.kind, mark.value.system, mark.value.backend) for mark in marks if mark.value}
    steps = pairwise(mark.x for mark in marks)
    rising = all(left is not None and right is not None and left < right for left, right in steps)
    return len(marks) > 1 and not panel.aside and len(modes) == 1 and rising


def _predicted_series(content: Content, among: Sequence[Content]) -> Iterator[Series]:
    """A band per predicted curve, in the look of the published series that it predicts."""
    published = {marks[0].label for peer in among for marks in peer.curves}
    for curve in content.predicted:
        unit = content.panel.unit
        yield Series(
            name=curve.label,
            look=curve.label,
            evidence=SIMULATED,
            points=tuple(
                Point(x=x, y=band.median / unit, low=band.low / unit, high=band.high / unit)
                for x, band in curve.points
            ),
            tags=_published_tags(curve.label) if curve.label in published else Tags(backend=curve.backend),
            joined=len(curve.points) > 1,
            band=True,
        )


def _own_series(content: Content) -> Iterator[Series]:
    """Our points, never joined."""
    names = list(dict.fromkeys((point.name, str(point.row.evidence)) for point in content.ours))
    backends = {point.name: point.row.cell.backend for point in content.ours}
    unit = content.panel.unit
    for name, evidence in names:
        yield Series(
            name=name,
            look=name,
            evidence=evidence,
            points=tuple(
                Point(
                    x=point.x,
                    y=point.value.center / unit,
                    low=None if point.value.low is None else point.value.low / unit,
                    high=None if point.value.high is None else point.value.high / unit,
                )
                for point in content.ours
                if (point.name, str(point.row.evidence)) == (name, evidence)
            ),
            tags=Tags(backend=backends[name]),
        )


def _reference_series(content: Content) -> Iterator[Series]:
    """What was measured here, a curve per series and kind of evidence."""
    unit, places = content.panel.unit, [(row.x, row.series) for row in content.reference]
    for name, evidence in dict.fromkeys((row.series, row.evidence) for row in content.reference):
        rows = [row for row in content.reference if (row.series, row.evidence) == (name, evidence)]
        points = [
            Point(
                x=_aside(row.x, name, places, content),
                y=row.in_unit(row.y, unit) or 0.0,
                low=row.in_unit(row.low, unit),
                high=row.in_unit(row.high, unit),
            )
            for row in sorted(rows, key=lambda row: row.x)
        ]
        yield Series(
            name=name,
            look=name,
            evidence=evidence,
            points=tuple(points),
            tags=Tags(backend=rows[0].backend or ""),
            joined=len(rows) > 1 and not content.panel.aside,
        )


def _guides(content: Content, edges: tuple[float, float]) -> Iterator[Guide]:
    """Ideal scaling, the backend that others are relative to, and published values without a place."""
    figure, panel = content.figure, content.panel
    low, high = edges
    if panel.layout == "efficiency":
        yield Guide(label="ideal", y=1 / panel.unit)
    elif panel.layout == "speed_up":
        yield Guide(label="ideal", points=((low, low / figure.base_x), (high, high / figure.base_x)))
    elif panel.layout == "throughput":
        for x, y in _starts(content):
            yield Guide(label="ideal", points=((low, y * low / x), (high, y * high / x)))
    elif panel.layout == "relative_throughput":
        yield Guide(label="equal", y=1.0)
    if not figure.named_points:
        for mark in content.marks:
            if mark.x is None:
                yield Guide(label=mark.label, y=mark.y)


def _starts(content: Content) -> list[tuple[float, float]]:
    """The first point of each published series, else values stated for one device, else the first prediction."""
    starts = [
        (marks[0].x, marks[0].y) for marks in content.curves if marks[0].value and marks[0].x is not None
    ]
    if not starts:
        at_one = [one for one in content.stated if one.statement.x_low == one.statement.x_high == 1]
        starts = [(1.0, end) for one in at_one for end in dict.fromkeys(_known((one.low, one.high)))]
    if not starts:
        firsts = [curve.points[0] for curve in content.predicted[:1]]
        starts = [(x, band.median / content.panel.unit) for x, band in firsts]
    return starts


def _areas(content: Content) -> Iterator[Area]:
    """What is said of a range; equal words are written once."""
    written: set[str] = set()
    for one in content.stated:
        if one.one_number:
            continue
        said = one.statement
        x, y, rising = (said.x_low, said.x_high), (one.low, one.high), False
        if said.quantity == "linear":
            rising = content.panel.layout == "speed_up"
            ideal = [(end or 0.0) / content.figure.base_x if rising else 1 / content.panel.unit for end in x]
            y = (ideal[0], ideal[1])
        yield Area(x=x, y=y, text="" if said.label in written else said.label, rising=rising)
        written.add(said.label)


def _x_axis(figure: Figure, among: Sequence[Content]) -> Axis:
    """The catalogue's range, extended to what is ours."""
    places = [place for content in among for place in content.places]
    low, high = min((figure.x_range[0], *places)), max((figure.x_range[1], *places))
    title = figure.x_label + ("" if figure.x_unit in figure.x_label else f" [{figure.x_unit}]")
    if figure.x_scale == "linear":
        margin = 0.06 * (high - low)
        few = tuple((float(at), str(at)) for at in range(1, 1 + int(high)) if low >= 1 and high < 9)
        known = not all(content.empty for content in among)
        return Axis(title=title, low=low - margin, high=high + margin, numbers=known, ticks=few)
    margin = _OCTAVE_MARGIN * (1.4 if any(content.panel.aside for content in among) else 1)
    marks = {mark.x for content in among for mark in content.marks if mark.x is not None}
    marks |= {point.x for content in among for point in content.ours}
    marks |= {row.x for content in among for row in content.reference}
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high * 2)) + 1)
    ticks = _octaves(low, high, marks) if figure.x_scale == "log2" else [10.0**power for power in powers]
    return Axis(
        title=title,
        kind="log",
        ticks=tuple((tick, f"{tick:g}") for tick in ticks),
        low=low * 2**-margin,
        high=high * 2**margin,
    )


def _octaves(low: float, high: float, places: set[float]) -> list[float]:
    """Ticks at doublings of the lowest value, and at other places that are far enough from those."""
    ticks = [low]
    while ticks[-1] * 2 <= high * 1.001:
        ticks.append(ticks[-1] * 2)
    if len(ticks) > 8:
        ticks = ticks[::2]
    if 1 < high / ticks[-1] < _CLOSE:
        ticks[-1] = high
    far = [p for p in (*places, high) if all(max(p / tick, tick / p) > _CLOSE for tick in ticks)]
    return sorted({*ticks, *far})


def _y_axis(content: Content, alike: Sequence[Content]) -> Axis:
    """Efficiency from 0, others around the known values of panels `alike`; without any it has no numbers."""
    panel, figure = content.panel, content.figure
    title = f"{panel.y_label} [{panel.y_unit}]"
    heights = [height for peer in alike for height in peer.heights]
    if panel.layout == "efficiency":
        return Axis(title=title, low=0, high=max(1.12 / panel.unit, 1.06 * max(heights, default=0)))
    if panel.layout == "speed_up":
        widest = max((figure.x_range[1], *(place for peer in alike for place in peer.places)))
        heights += [1.0, widest / figure.base_x]
    elif not heights:
        return Axis(title=title, low=0, high=1, numbers=False)
    heights += _reach(content)
    low, high = min(heights), max(heights)
    if panel.y_scale == "log":
        if high < 3 * low:
            low, high = low / 2, high * 2
        return Axis(title=title, kind="log", low=low / 1.5, high=high * 1.5)
    # From 0, unless the values vary little relative to their size.
    bottom = 0.0 if low < 0.6 * high or low == high else low - 0.15 * (high - low)
    return Axis(title=title, low=bottom, high=high + (0.12 * (high - bottom) or 0.5 * abs(high)))


def _reach(content: Content) -> list[float]:
    """Heights that an unpublished curve would reach, so that there is room for one of ours."""
    if content.panel.layout == "relative_throughput":
        return [1.0]
    if content.in_full or content.panel.layout != "throughput":
        return []
    places = [(one.statement.x_high, one.high) for one in content.stated]
    return [y * end / x for x, y in places if x and y for end in content.figure.x_range]
