"""The content of a panel: published points, statements as marks and bands, predicted curves, and our points.

Our points are the cells that match the figure, in its quantity and on its x axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import ScalingRow, rows_of
from dlscale.analysis.measured import Measured
from dlscale.analysis.published.catalogue import Figure, Own, Panel, Published
from dlscale.analysis.published.values import HALF_WIDTH, PLACES, Statement, Value, factor
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import backend_name
from dlscale.benchmarks.records.record import Cell

MIN_VALUES = 3  # for a curve to be drawn in full
RATIOS = ("speed_up", "efficiency")  # quantities whose ideal line needs no rate
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
class StatementMark:
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
class SimulatedPoint:
    """A place of a predicted curve, with its band, in the quantity's base unit."""

    x: float
    low: float
    center: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCurve:
    """What a landmark predicts in one panel of a figure, in the quantity of that panel."""

    figure: str
    panel: int  # its place in the figure
    label: str  # in the legend; that of the published series where it predicts one
    backend: str  # of ours, whose colour it has
    points: tuple[SimulatedPoint, ...]
    landmark: str
    assumed: tuple[str, ...] = ()  # what of its inputs is not public, and stands in it as a range of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """The content of one panel."""

    panel: Panel
    marks: tuple[Mark, ...]
    statements: tuple[StatementMark, ...]
    ours: tuple[Point, ...]
    simulated: tuple[SimulatedCurve, ...] = ()

    @property
    def in_full(self) -> bool:
        """Whether the values of the publication's curve are public."""
        return len(self.marks) >= MIN_VALUES

    @property
    def empty(self) -> bool:
        """Whether the panel has only axes."""
        return not (self.marks or self.statements or self.ours or self.simulated)

    @property
    def series(self) -> dict[str, list[Mark]]:
        """The marks of each published series in the order of x; those without an x come last."""
        by_series: dict[str, list[Mark]] = {}
        for mark in self.marks:
            by_series.setdefault(mark.value.series, []).append(mark)
        order = float("inf")
        return {
            name: sorted(marks, key=lambda mark: order if mark.x is None else mark.x)
            for name, marks in by_series.items()
        }

    def joined(self, marks: Sequence[Mark]) -> bool:
        """Whether a line may join the marks: two or more of one mode, with increasing x."""
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
        """A value in the quantity's base unit, converted to the panel's unit."""
        return value / factor(self.panel.layout, self.panel.y_unit)

    @property
    def heights(self) -> list[float]:
        """All y values that must be visible."""
        heights: list[float] = []
        for mark in self.marks:
            half = mark.half_width or 0.0
            heights += [mark.y - half, mark.y + half]
        for statement_mark in self.statements:
            heights += [end for end in (statement_mark.low, statement_mark.high) if end is not None]
        for point in self.ours:
            ends = (point.value.center, point.value.low, point.value.high)
            heights += [self.shown(end) for end in ends if end is not None]
        for curve in self.simulated:
            heights += [self.shown(end) for place in curve.points for end in (place.low, place.high)]
        return heights

    @property
    def places(self) -> list[float]:
        """All x of what is ours, measured or predicted."""
        predicted = [place.x for curve in self.simulated for place in curve.points]
        return [point.x for point in self.ours] + predicted


def aside(name: str, among: Sequence[str]) -> float:
    """Factor on x that shifts a series from others at the same place, so that their markers do not overlap."""
    return float(2.0 ** (_ASIDE_OCTAVES * (among.index(name) - (len(among) - 1) / 2)))


def plots_of(
    published: Published,
    figure: Figure,
    studies: Sequence[Measured],
    *,
    stand_in: str | None = None,
    simulated: Sequence[SimulatedCurve] = (),
) -> list[Plot]:
    """One plot per panel, with the curves of `simulated` that are predicted of it."""
    return [
        Plot(
            panel=panel,
            marks=tuple(_marks(published.values_of(figure.id), figure, panel)),
            statements=tuple(_statement_marks(published.statements_of(figure.id), figure, panel)),
            ours=tuple(own_points(figure, panel, studies, stand_in=stand_in)),
            simulated=tuple(
                curve for curve in simulated if (curve.figure, curve.panel) == (figure.id, index)
            ),
        )
        for index, panel in enumerate(figure.panels)
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


def _statement_marks(
    statements: Iterable[Statement], figure: Figure, panel: Panel
) -> Iterable[StatementMark]:
    scale = factor(panel.layout, panel.y_unit)
    for statement in statements:
        if (
            not statement.label
            or not panel.holds(statement.series)
            or (statement.x_unit and statement.x_unit != figure.x_unit)
        ):
            continue
        if statement.quantity not in (panel.layout, *PLACES) or (
            statement.quantity == "linear" and panel.layout not in RATIOS
        ):
            continue
        low, high = (None if end is None else end / scale for end in statement.band)
        yield StatementMark(
            statement=statement,
            quantity=statement.quantity,
            low=low,
            high=high,
            x_low=statement.x_low,
            x_high=statement.x_high,
        )


# If a published ratio starts at more than one device, ours is a ratio of two medians: no blocks, no interval.
RATIO_OF_MEDIANS = "ratio of medians"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The value of one of our cells in a panel. `value` is in the quantity's base unit."""

    row: ScalingRow
    study: str
    x: float
    value: Interval
    on: str  # the system, if it replaces the publication's; else empty

    @property
    def name(self) -> str:
        """The point's name in the legend."""
        cell = self.row.cell
        where = f" on {self.on}" if self.on else ""
        return f"{backend_name(cell)}, {cell.framework}{where}"


def own_points(
    figure: Figure, panel: Panel, studies: Sequence[Measured], *, stand_in: str | None = None
) -> list[Point]:
    """Our points in a panel, in the tables' order; `stand_in` is a system that replaces the publication's."""
    if figure.own is None:
        return []
    wanted = figure.own.narrowed(panel.own)
    return list(matching(figure, wanted, panel.layout, studies, stand_in=stand_in))


def matching(
    figure: Figure, wanted: Own, quantity: str, studies: Sequence[Measured], *, stand_in: str | None = None
) -> Iterator[Point]:
    """A point for every training cell that meets the requirements and has the quantity."""
    on = stand_in if stand_in and stand_in != wanted.system else ""
    if stand_in:
        wanted = wanted.narrowed(Own(system=stand_in))
    for study in studies:
        for row in scaling.FINDING.of(study):
            if not (_trains(row) and wanted.accepts(row.cell, system=row.family.system)):
                continue
            x = x_of(row.cell, figure.x_unit)
            value = value_of(row, quantity, figure, study) if x is not None else None
            if x is not None and value is not None:
                name = ", ".join(study.provenance.studies)
                yield Point(row=row, study=name, x=x, value=value, on=on)


def _trains(row: ScalingRow) -> bool:
    """Whether a row is a real training; backend `none` on several ranks is no distributed training."""
    return row.cell.control == "train" and (row.cell.backend != "none" or row.cell.num_ranks == 1)


def x_of(cell: Cell, unit: str) -> float | None:
    """The x of a cell on an axis in that unit; None if scaling studies have no such quantity."""
    if unit in ("GPUs", "devices", "processes"):
        return cell.num_ranks
    return {"nodes": cell.num_nodes, "images": cell.global_batch}.get(unit)


def value_of(row: ScalingRow, quantity: str, figure: Figure, study: Measured) -> Interval | None:
    """The cell's value of a published quantity; None if unknown."""
    rate = row.throughput
    if rate is None:
        return None
    amounts = {
        "seconds_per_step": row.cell.global_batch,
        "seconds_per_sample": row.cell.num_ranks,
        "seconds_per_epoch": figure.images_per_epoch,
    }
    if quantity == "throughput":
        return rate
    if quantity in amounts:
        amount = amounts[quantity]
        return None if amount is None else rate.rate(amount)
    if quantity == "relative_throughput":
        return _relative(row, study, figure.relative_to)
    if quantity not in ("efficiency", "speed_up"):
        return None
    kept = _efficiency(row, study, figure)
    if kept is None or quantity == "efficiency":
        return kept
    return kept.times((x_of(row.cell, figure.x_unit) or 0) / figure.base_x)


def _efficiency(row: ScalingRow, study: Measured, figure: Figure) -> Interval | None:
    """Efficiency against 1 rank without a communication layer, or against our cell at the publication's base x."""
    if figure.base_x == 1:
        return row.efficiency_none
    base = next(
        (
            candidate
            for candidate in _like(row, study)
            if x_of(candidate.cell, figure.x_unit) == figure.base_x
        ),
        None,
    )
    x = x_of(row.cell, figure.x_unit)
    return _ratio(row, base, figure.base_x / x) if base and x else None


def _relative(row: ScalingRow, study: Measured, backend: str | None) -> Interval | None:
    """The rate relative to that of another backend on the same number of ranks."""
    rows = [
        candidate
        for candidate in rows_of(scaling.FINDING.of(study), row.family)
        if candidate.cell.backend == backend and _trains(candidate)
    ]
    same = [
        candidate
        for candidate in rows
        if candidate.cell.num_ranks == row.cell.num_ranks and candidate.evidence == row.evidence
    ]
    return _ratio(row, same[0], 1.0) if same and row.cell.backend != backend else None


def _like(row: ScalingRow, study: Measured) -> Iterator[ScalingRow]:
    """The cells on the same curve."""
    for candidate in rows_of(scaling.FINDING.of(study), row.family):
        if (
            backend_name(candidate.cell) == backend_name(row.cell)
            and candidate.evidence == row.evidence
            and _trains(candidate)
        ):
            yield candidate


def _ratio(row: ScalingRow, base: ScalingRow, scale: float) -> Interval | None:
    if row.throughput is None or base.throughput is None:
        return None
    return Interval(
        center=row.throughput.center / base.throughput.center * scale,
        low=None,
        high=None,
        level=LEVEL,
        method=RATIO_OF_MEDIANS,
        n=min(row.throughput.n, base.throughput.n),
    )
