"""Claims of publications versus what is predicted.

    disagrees     the prediction's band and what is published have no value in common
    agrees        they have, and the band lies within the figure's tolerance of what is published
    cannot tell   they have, but the band reaches farther: what is public does not fix the prediction

A published number is a range by its rounding or scatter; words become a range by the claim's reading.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from dlscale.analysis.landmarks.landmark import AnyCurve, Claim, Landmark, statement_of, x_of
from dlscale.analysis.landmarks.points import points
from dlscale.analysis.landmarks.predicted import Band, Floats, Predictions, Replicates, band_of
from dlscale.analysis.published.catalogue import Figure, Published
from dlscale.base.errors import UsageError

VERDICTS = AGREES, DISAGREES, CANNOT_TELL = "agrees", "disagrees", "cannot tell"
QUANTITIES = (
    *("efficiency", "speed_up", "throughput"),
    *("seconds_per_step", "seconds_per_epoch", "relative_time"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdict:
    """A claim with its prediction; `low` and `high` are None where what is published is open. Base units throughout.

    Without a landmark it has neither a claim nor a prediction: `missing` says which input is not public.
    """

    figure: Figure
    landmark: Landmark | None
    claim: Claim | None
    words: str
    quantity: str
    x: float | None
    low: float | None
    high: float | None
    predicted: Band | None
    verdict: str
    missing: str = ""

    @property
    def reason(self) -> str:
        """Why it disagrees, or cannot be told."""
        if self.verdict == DISAGREES and self.claim:
            return self.claim.reason or "no reason is written"
        if self.verdict == CANNOT_TELL and self.claim:
            return "what is public leaves the prediction wider than the tolerance"
        return self.missing


def verdicts(
    published: Published, landmarks: Sequence[Landmark], *, names: Collection[str] = ()
) -> list[ClaimVerdict]:
    """The verdicts on all claims, by figure in the catalogue's order; with `names` of those figures alone.

    A figure without a claim has one verdict: what is missing. Raises UsageError for an unknown figure.
    """
    figures = [published.figure(name) for name in names or published.figures]
    by_figure: dict[str, list[ClaimVerdict]] = {}
    for landmark in landmarks:
        predictions = Predictions(landmark)
        for claim in landmark.claims:
            if claim.figure in {figure.id for figure in figures}:
                found = by_figure.setdefault(claim.figure, [])
                found += claim_verdicts(predictions, claim, published)
    return [row for figure in figures for row in by_figure.get(figure.id, [_without_landmark(figure)])]


def _without_landmark(figure: Figure) -> ClaimVerdict:
    return ClaimVerdict(
        figure=figure,
        landmark=None,
        claim=None,
        words=figure.title,
        quantity="",
        x=None,
        low=None,
        high=None,
        predicted=None,
        verdict=CANNOT_TELL,
        missing=figure.missing or "nothing to predict",
    )


def claim_verdicts(predictions: Predictions, claim: Claim, published: Published) -> Iterator[ClaimVerdict]:
    """The verdict on a claim; on check `values` one per published value. Raises UsageError."""
    figure = published.figure(claim.figure)
    landmark = predictions.landmark
    curve = landmark.curve(claim.curves[0])
    if claim.check == "values":
        yield from _values(predictions, claim, figure, curve, published)
        return
    low, high = _published_range(claim, published)
    predicted = _predicted(predictions, claim, figure, curve)
    tolerance = 0.0 if claim.check in ("gain", "scaling_ends") else figure.tolerance
    yield ClaimVerdict(
        figure=figure,
        landmark=landmark,
        claim=claim,
        words=claim.statement,
        quantity=_quantity(claim),
        x=x_of(figure, curve, claim.at) if claim.at else None,
        low=low,
        high=high,
        predicted=predicted,
        verdict=verdict_of(predicted, low, high, tolerance=tolerance),
    )


def verdict_of(predicted: Band, low: float | None, high: float | None, *, tolerance: float) -> str:
    """The verdict on a band, given what is published, with an open end where that is None."""
    bottom, top = -math.inf if low is None else low, math.inf if high is None else high
    if predicted.high < bottom or predicted.low > top:
        return DISAGREES
    within = bottom * (1 - tolerance) <= predicted.low and predicted.high <= top * (1 + tolerance)
    return AGREES if within else CANNOT_TELL


def quantity_of(curve: AnyCurve, replicates: Replicates, quantity: str, figure: Figure) -> Floats | None:
    """(R,) a published quantity of a curve's replicates, in its base unit; None if it has none."""
    rate, size = replicates.samples_per_second, replicates.size
    if quantity == "efficiency":
        return replicates.efficiency
    if quantity == "speed_up":
        return replicates.efficiency * size / curve.base
    if quantity == "throughput":
        return rate
    if quantity == "seconds_per_step":
        return (curve.batch.value if curve.strong else size * curve.batch.value) / rate
    if quantity == "seconds_per_epoch" and figure.images_per_epoch:
        return figure.images_per_epoch / rate
    if quantity == "relative_time" and not curve.strong:
        return 1 / replicates.efficiency
    return None


def _values(
    predictions: Predictions, claim: Claim, figure: Figure, curve: AnyCurve, published: Published
) -> Iterator[ClaimVerdict]:
    base, series = x_of(figure, curve, curve.base), curve.figures[figure.id]
    for point in points(published, figure.id, series, base=base):
        size = round(point.x / base * curve.base)
        predicted = band_of(predictions.replicates(curve.name, size).efficiency)
        low, high = point.efficiency - point.half_width, point.efficiency + point.half_width
        yield ClaimVerdict(
            figure=figure,
            landmark=predictions.landmark,
            claim=claim,
            words=series,
            quantity="efficiency",
            x=point.x,
            low=low,
            high=high,
            predicted=predicted,
            verdict=verdict_of(predicted, low, high, tolerance=figure.tolerance),
        )


def _quantity(claim: Claim) -> str:
    named = {"ratio": "relative_throughput", "gain": f"efficiency gained by {claim.changed}"}
    return named.get(claim.check, claim.quantity or claim.check)


def _published_range(claim: Claim, published: Published) -> tuple[float | None, float | None]:
    """The claim's own numbers where it has some, else the statement's. Raises UsageError if neither has any."""
    if claim.low is not None or claim.high is not None:
        return claim.low, claim.high
    statement = statement_of(claim, published)
    if statement and claim.check == "scaling_ends":
        return statement.x_low, statement.x_high
    if statement and statement.quantity == _quantity(claim):
        return statement.band
    raise UsageError(
        f"a claim of {claim.figure}, {claim.statement!r}: no {_quantity(claim)} in statements.csv; give low or "
        "high, with a reading"
    )


def _predicted(predictions: Predictions, claim: Claim, figure: Figure, curve: AnyCurve) -> Band:
    if claim.check == "scaling_ends":
        return _scaling_ends(predictions, claim, curve)
    size = claim.at or curve.base
    here = predictions.replicates(curve.name, size)
    if claim.check == "ratio":
        under = predictions.replicates(claim.curves[1], size)
        return band_of(here.samples_per_second / under.samples_per_second)
    if claim.check == "gain":
        changed = predictions.replicates(curve.name, size, changed=claim.changed)
        return band_of(changed.efficiency - here.efficiency)
    values = quantity_of(curve, here, claim.quantity, figure)
    if values is None:
        raise UsageError(
            f"a claim of {claim.figure}: no {claim.quantity!r} of curve {curve.name}; choose one of: "
            f"{', '.join(QUANTITIES)}"
        )
    return band_of(values)


def _scaling_ends(predictions: Predictions, claim: Claim, curve: AnyCurve) -> Band:
    """The size up to which each edge of the band keeps what is asked: its lower edge most, its upper one least."""
    bands = [(size, band_of(predictions.replicates(curve.name, size).efficiency)) for size in curve.sizes]
    thresholds = claim.threshold or (1.0, 1.0)
    least, most = min(thresholds), max(thresholds)

    def end(efficiencies: list[tuple[int, float]], threshold: float) -> float:
        kept = curve.base
        for size, efficiency in efficiencies:
            if efficiency < threshold:
                break
            kept = size
        return float(kept)

    return Band(
        low=end([(size, band.low) for size, band in bands], most),
        median=end([(size, band.median) for size, band in bands], (least + most) / 2),
        high=end([(size, band.high) for size, band in bands], least),
    )
