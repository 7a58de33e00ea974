"""What is predicted of a figure, as the bands that its panels show."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from dlscale.analysis.landmarks.claims import quantity_of
from dlscale.analysis.landmarks.landmark import AnyCurve, Claim, Landmark, x_of
from dlscale.analysis.landmarks.predicted import Floats, Predictions, band_of
from dlscale.analysis.published.catalogue import Figure, Panel, Published
from dlscale.analysis.published.panels import RATIOS, SimulatedCurve, SimulatedPoint


def simulated_curves(
    published: Published, landmarks: Sequence[Landmark], *, names: Collection[str] = ()
) -> list[SimulatedCurve]:
    """Every curve in every panel that has its quantity; with `names` in those figures alone."""
    return [
        curve for landmark in landmarks for curve in _of_landmark(Predictions(landmark), published, names)
    ]


def _of_landmark(
    predictions: Predictions, published: Published, names: Collection[str]
) -> Iterator[SimulatedCurve]:
    landmark = predictions.landmark
    for name in landmark.figures:
        if names and name not in names:
            continue
        figure = published.figure(name)
        for index, panel in enumerate(figure.panels):
            for curve in landmark.curves:
                series = curve.figures.get(name)
                if series is not None and (not series or panel.holds(series)):
                    yield from _in_panel(predictions, figure, index, panel, curve)
            for claim in landmark.claims:
                if claim.figure == name and claim.check == "ratio" and panel.layout == "relative_throughput":
                    yield _ratio(predictions, figure, index, claim)


def _in_panel(
    predictions: Predictions, figure: Figure, index: int, panel: Panel, curve: AnyCurve
) -> Iterator[SimulatedCurve]:
    """The curve in the panel's quantity; none where that begins at other devices than the curve."""
    if panel.layout in RATIOS and x_of(figure, curve, curve.base) != figure.base_x:
        return
    known = []
    for size in curve.sizes:
        values = quantity_of(curve, predictions.replicates(curve.name, size), panel.layout, figure)
        if values is None:
            return
        known.append(_point(x_of(figure, curve, size), values))
    series = curve.figures[figure.id]
    yield SimulatedCurve(
        figure=figure.id,
        panel=index,
        label=figure.label(series) if series else curve.name,
        backend=curve.backend,
        points=tuple(known),
        landmark=predictions.landmark.name,
        assumed=predictions.landmark.assumed(curve.name),
    )


def _ratio(predictions: Predictions, figure: Figure, index: int, claim: Claim) -> SimulatedCurve:
    above, below = (predictions.landmark.curve(name) for name in claim.curves)
    sizes = sorted(set(above.sizes) & set(below.sizes))
    known = []
    for size in sizes:
        over, under = (predictions.replicates(name, size) for name in claim.curves)
        known.append(_point(x_of(figure, above, size), over.samples_per_second / under.samples_per_second))
    return SimulatedCurve(
        figure=figure.id,
        panel=index,
        label=claim.label or f"{above.name} over {below.name}",
        backend=above.backend,
        points=tuple(known),
        landmark=predictions.landmark.name,
        assumed=tuple(text for name in claim.curves for text in predictions.landmark.assumed(name)),
    )


def _point(x: float, values: Floats) -> SimulatedPoint:
    band = band_of(values)
    return SimulatedPoint(x=x, low=band.low, center=band.median, high=band.high)
