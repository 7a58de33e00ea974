"""What a panel shows, before it is drawn: published points, statements as marks and bands, points of ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dlscale.analysis.published.catalogue import Figure, Panel
from dlscale.analysis.published.load import Published
from dlscale.analysis.published.ours import Point, points
from dlscale.analysis.published.units import HALF_WIDTH, PLACES, factor
from dlscale.analysis.published.values import Statement, Value
from dlscale.analysis.scaling import ScalingTable

MIN_VALUES = 3  # of a curve that is drawn in full
RATIOS = ("speed_up", "efficiency")  # whose ideal line needs no rate
_ASIDE_OCTAVES = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One published value: `x` is None where it has no place, `half_width` where none is published."""

    value: Value
    label: str  # in the legend
    x: float | None
    y: float  # in the panel's unit, like all below
    half_width: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A statement with numbers, as a mark (one place) or a band; a None in `low` or `high` is an open end.

    `quantity` is the panel's, or one of `units.PLACES`, which have no y.
    """

    statement: Statement
    quantity: str
    low: float | None
    high: float | None
    x_low: float | None
    x_high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Everything in one panel."""

    panel: Panel
    marks: tuple[Mark, ...]
    said: tuple[Said, ...]
    ours: tuple[Point, ...]

    @property
    def in_full(self) -> bool:
        """Whether the publication's curve itself is public."""
        return len(self.marks) >= MIN_VALUES

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw but the axes."""
        return not (self.marks or self.said or self.ours)

    @property
    def series(self) -> dict[str, list[Mark]]:
        """Published series -> its marks in the order of x; those without a place come last."""
        found: dict[str, list[Mark]] = {}
        for mark in self.marks:
            found.setdefault(mark.value.series, []).append(mark)
        order = float("inf")
        return {
            name: sorted(marks, key=lambda mark: order if mark.x is None else mark.x)
            for name, marks in found.items()
        }

    def joined(self, marks: Sequence[Mark]) -> bool:
        """Whether a line may join them: two or more, of one mode, each further along x than the one before."""
        places = [mark.x for mark in marks]
        one_mode = len({(mark.value.kind, mark.value.system, mark.value.backend) for mark in marks}) == 1
        return (
            len(marks) > 1
            and not self.panel.aside
            and one_mode
            and all(
                left is not None and right is not None and left < right for left, right in pairwise(places)
            )
        )

    def shown(self, value: float) -> float:
        """A number in the quantity's base unit, in the panel's."""
        return value / factor(self.panel.layout, self.panel.y_unit)

    @property
    def heights(self) -> list[float]:
        """All y that must be visible."""
        found: list[float] = []
        for mark in self.marks:
            half = mark.half_width or 0.0
            found += [mark.y - half, mark.y + half]
        for one in self.said:
            found += [end for end in (one.low, one.high) if end is not None]
        for point in self.ours:
            ends = (point.value.center, point.value.low, point.value.high)
            found += [self.shown(end) for end in ends if end is not None]
        return found


def aside(name: str, among: Sequence[str]) -> float:
    """Factor on x that moves a series aside from the others at its place, so that their markers can be told apart."""
    return float(2.0 ** (_ASIDE_OCTAVES * (among.index(name) - (len(among) - 1) / 2)))


def plots_of(
    published: Published, figure: Figure, tables: Sequence[ScalingTable], *, stand_in: str | None = None
) -> list[Plot]:
    """One per panel."""
    return [
        Plot(
            panel=panel,
            marks=tuple(_marks(published.values_of(figure.id), figure, panel)),
            said=tuple(_said(published.statements_of(figure.id), figure, panel)),
            ours=tuple(points(figure, panel, tables, stand_in=stand_in)),
        )
        for panel in figure.panels
    ]


def _marks(values: Iterable[Value], figure: Figure, panel: Panel) -> Iterable[Mark]:
    rows = [row for row in values if panel.holds(row.series)]
    scale = factor(panel.layout, panel.y_unit)
    widths = {(row.series, row.x): row.y for row in rows if row.quantity == panel.layout + HALF_WIDTH}
    for row in rows:
        if row.quantity == panel.layout:
            width = widths.get((row.series, row.x))
            yield Mark(
                value=row,
                label=figure.label(row.series),
                x=row.x,
                y=row.y / scale,
                half_width=None if width is None else width / scale,
            )


def _said(statements: Iterable[Statement], figure: Figure, panel: Panel) -> Iterable[Said]:
    scale = factor(panel.layout, panel.y_unit)
    for one in statements:
        if not one.label or not panel.holds(one.series) or (one.x_unit and one.x_unit != figure.x_unit):
            continue
        if one.quantity not in (panel.layout, *PLACES) or (
            one.quantity == "linear" and panel.layout not in RATIOS
        ):
            continue
        low, high = (None if end is None else end / scale for end in one.band)
        yield Said(
            statement=one, quantity=one.quantity, low=low, high=high, x_low=one.x_low, x_high=one.x_high
        )
