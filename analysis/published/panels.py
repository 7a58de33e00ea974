"""The content of a panel: published values, statements as marks and bands, predicted curves, and our points."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dlscale.analysis.measured import Measured
from dlscale.analysis.published.catalogue import Figure, Panel, Published
from dlscale.analysis.published.claims import AnyCurve, Publication, x_of
from dlscale.analysis.published.ours import Point, own_points
from dlscale.analysis.published.replicates import Band, Floats, Predictions, band_of, quantity_of
from dlscale.analysis.published.values import HALF_WIDTH, PLACES, RATIOS, Statement, Value

MIN_VALUES = 3  # for a curve to be drawn in full


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

    The statement's quantity is the panel's, or one of `values.PLACES`, which have no y.
    """

    statement: Statement
    low: float | None
    high: float | None

    @property
    def x(self) -> tuple[float | None, float | None]:
        """Both ends of the place; equal for one place."""
        return self.statement.x_low, self.statement.x_high

    @property
    def single(self) -> bool:
        """Whether it is a number at one place."""
        one_place = self.x[0] is not None and self.x[0] == self.x[1]
        return one_place and self.low is not None and self.low == self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCurve:
    """What is predicted in one panel of a figure: (x, band) of each size, in the quantity's base unit."""

    figure: str
    panel: int  # its place in the figure
    label: str  # in the legend; that of the published series where it predicts one
    backend: str  # of ours, whose colour it has
    points: tuple[tuple[float, Band], ...]
    publication: str  # whose file of claims it is in
    assumed: tuple[str, ...] = ()  # what of its inputs is not public, and stands in it as a range of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """The content of one panel."""

    panel: Panel
    marks: tuple[Mark, ...]
    statements: tuple[StatementMark, ...]
    ours: tuple[Point, ...]
    predicted: tuple[PredictedCurve, ...] = ()

    @property
    def in_full(self) -> bool:
        """Whether the values of the publication's curve are public."""
        return len(self.marks) >= MIN_VALUES

    @property
    def empty(self) -> bool:
        """Whether the panel has only axes."""
        return not (self.marks or self.statements or self.ours or self.predicted)

    @property
    def series(self) -> list[list[Mark]]:
        """The marks of each published series in the order of x; those without an x come last."""
        by_series: dict[str, list[Mark]] = {}
        for mark in self.marks:
            by_series.setdefault(mark.value.series, []).append(mark)
        order = float("inf")
        return [
            sorted(marks, key=lambda mark: order if mark.x is None else mark.x)
            for marks in by_series.values()
        ]

    def joined(self, marks: Sequence[Mark]) -> bool:
        """Whether a line may join the marks: two or more of one mode, with increasing x."""
        modes = {(mark.value.kind, mark.value.system, mark.value.backend) for mark in marks}
        steps = pairwise(mark.x for mark in marks)
        rising = all(left is not None and right is not None and left < right for left, right in steps)
        return len(marks) > 1 and not self.panel.aside and len(modes) == 1 and rising

    @property
    def heights(self) -> list[float]:
        """All y values that must be visible."""
        heights = [end for mark in self.statements for end in (mark.low, mark.high) if end is not None]
        for mark in self.marks:
            heights += [mark.y - (mark.half_width or 0.0), mark.y + (mark.half_width or 0.0)]
        ours = [end for point in self.ours for end in (point.value.center, point.value.low, point.value.high)]
        bands = [end for curve in self.predicted for _, band in curve.points for end in (band.low, band.high)]
        return heights + [end / self.panel.unit for end in (*ours, *bands) if end is not None]

    @property
    def places(self) -> list[float]:
        """All x of what is ours, measured or predicted."""
        return [point.x for point in self.ours] + [x for curve in self.predicted for x, _ in curve.points]


def plots_of(
    published: Published,
    figure: Figure,
    studies: Sequence[Measured] = (),
    *,
    stand_in: str | None = None,
    predicted: Sequence[PredictedCurve] = (),
) -> list[Plot]:
    """One plot per panel, with our points and the curves of `predicted` that belong there."""
    return [
        Plot(
            panel=panel,
            marks=tuple(_marks(published, figure, panel)),
            statements=tuple(_statement_marks(published, figure, panel)),
            ours=tuple(
                own_points(figure, figure.own.narrowed(panel.own), panel.layout, studies, stand_in=stand_in)
                if figure.own
                else ()
            ),
            predicted=tuple(
                curve for curve in predicted if (curve.figure, curve.panel) == (figure.id, index)
            ),
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


def _statement_marks(published: Published, figure: Figure, panel: Panel) -> Iterator[StatementMark]:
    for statement in published.statements_of(figure.id):
        elsewhere = statement.x_unit and statement.x_unit != figure.x_unit
        if not statement.label or not panel.holds(statement.series) or elsewhere:
            continue
        if statement.quantity not in (panel.layout, *PLACES):
            continue
        if statement.quantity == "linear" and panel.layout not in RATIOS:
            continue
        low, high = (None if end is None else end / panel.unit for end in statement.ends)
        yield StatementMark(statement=statement, low=low, high=high)


def predicted_curves(
    published: Published, publications: Sequence[Publication], *, names: Collection[str] = ()
) -> list[PredictedCurve]:
    """Every predicted curve in every panel that has its quantity; with `names` in those figures alone."""
    return [
        curve
        for publication in publications
        for curve in _of_publication(Predictions(publication), published, names)
    ]


def _of_publication(
    predictions: Predictions, published: Published, names: Collection[str]
) -> Iterator[PredictedCurve]:
    """The publication's curves, and in panels of relative throughput the ratios of two that it claims."""
    publication = predictions.publication
    for figure in map(published.figure, publication.figures):
        if names and figure.id not in names:
            continue
        for index, panel in enumerate(figure.panels):
            found: list[tuple[str, tuple[AnyCurve, ...], list[tuple[float, Floats]]]] = []
            for curve in publication.curves:
                series = curve.figures.get(figure.id)
                if series is not None and (not series or panel.holds(series)):
                    label = figure.label(series) if series else curve.name
                    found.append((label, (curve,), _sizes_of(predictions, figure, panel, curve)))
            for claim in publication.claims:
                if (
                    claim.figure == figure.id
                    and claim.check == "ratio"
                    and panel.layout == "relative_throughput"
                ):
                    above, below = map(publication.curve, claim.curves)
                    label = claim.label or f"{above.name} over {below.name}"
                    found.append((label, (above, below), _ratios_of(predictions, figure, above, below)))
            for label, curves, sizes in found:
                if sizes:
                    yield PredictedCurve(
                        figure=figure.id,
                        panel=index,
                        label=label,
                        backend=curves[0].backend,
                        points=tuple((x, band_of(values)) for x, values in sizes),
                        publication=publication.name,
                        assumed=tuple(text for curve in curves for text in publication.assumed(curve.name)),
                    )


def _sizes_of(
    predictions: Predictions, figure: Figure, panel: Panel, curve: AnyCurve
) -> list[tuple[float, Floats]]:
    """(x, replicates) in the panel's quantity; none where that begins at other devices than the curve."""
    if panel.layout in RATIOS and x_of(figure, curve, curve.base) != figure.base_x:
        return []
    found = []
    for size in curve.sizes:
        values = quantity_of(curve, predictions.replicates(curve.name, size), panel.layout, figure)
        if values is None:
            return []
        found.append((x_of(figure, curve, size), values))
    return found


def _ratios_of(
    predictions: Predictions, figure: Figure, above: AnyCurve, below: AnyCurve
) -> list[tuple[float, Floats]]:
    found = []
    for size in sorted(set(above.sizes) & set(below.sizes)):
        over, under = (predictions.replicates(curve.name, size) for curve in (above, below))
        found.append((x_of(figure, above, size), over.samples_per_second / under.samples_per_second))
    return found
