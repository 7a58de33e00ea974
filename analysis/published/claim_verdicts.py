"""Claims of publications compared with what is predicted.

    disagrees     the prediction's band and what is published have no value in common
    agrees        they have, and the band lies within 5 % of what is published; of a ratio, of its excess over 1
    cannot tell   they have, but the band reaches farther: what is public does not fix the prediction

A published number is a range by its rounding and by how repeated runs differ: by what is stated, else by 2 points of
an efficiency and 2 % of other numbers. Words become a range by the claim's reading.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np

from dlscale.analysis.published.catalogue import Figure, Published
from dlscale.analysis.published.claims import AnyCurve, Claim, Publication, statement_of, x_of
from dlscale.analysis.published.compare import AGREES, DISAGREES
from dlscale.analysis.published.predictions import Band, Predictions, band_of, quantity_of
from dlscale.analysis.published.values import HALF_WIDTH
from dlscale.base.errors import UsageError

CANNOT_TELL = "cannot tell"
VERDICTS = (AGREES, DISAGREES, CANNOT_TELL)
QUANTITIES = (
    *("efficiency", "speed_up", "throughput"),
    *("seconds_per_step", "seconds_per_epoch", "relative_time"),
)
_ABOUT = 0.005  # efficiencies in words are rounded to a percent
TOLERANCE = 0.05  # of what is published, that a band may reach beyond it
REPEATED_RUNS = 0.02  # by which they differ where a publication does not say it
_OF_RATIOS = ("relative_throughput", "relative_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdict:
    """A claim with its prediction; `low` and `high` are None where what is published is open. Base units throughout.

    A figure that nothing predicts has one without a claim: `missing` says which input is not public.
    """

    figure: Figure
    publication: Publication | None = None
    claim: Claim | None = None
    words: str
    quantity: str = ""
    x: float | None = None
    x_unit: str = ""
    low: float | None = None
    high: float | None = None
    predicted: Band | None = None
    verdict: str = CANNOT_TELL
    missing: str = ""
    counted: bool = True  # once, where several figures have it

    @property
    def reason(self) -> str:
        """Why it disagrees, or cannot be told."""
        if self.verdict == DISAGREES and self.claim:
            return self.claim.reason or "no reason is written"
        if self.verdict == CANNOT_TELL and self.claim:
            return "what is public leaves the prediction wider than the tolerance"
        return self.missing


def verdicts(
    published: Published, publications: Sequence[Publication], *, names: Collection[str] = ()
) -> list[ClaimVerdict]:
    """The verdicts on all claims, by figure in the catalogue's order; with `names` of those figures alone.

    A figure without a claim has one verdict: what is missing. Raises UsageError for an unknown figure.
    """
    figures = [published.figure(name) for name in names or published.figures]
    by_figure: dict[str, list[ClaimVerdict]] = {figure.id: [] for figure in figures}
    for publication in publications:
        predictions = Predictions(publication)
        for claim in publication.claims:
            shown = [name for name in (claim.figure, *claim.also) if name in by_figure and claim.curves]
            rows = list(claim_verdicts(predictions, claim, published)) if shown else []
            for place, name in enumerate(shown):
                figure = published.figure(name)
                by_figure[name] += [replace(row, figure=figure, counted=not place) for row in rows]
    return [row for figure in figures for row in by_figure[figure.id] or [_unpredicted(figure)]]


def _unpredicted(figure: Figure) -> ClaimVerdict:
    return ClaimVerdict(figure=figure, words=figure.title, missing=figure.missing or "nothing to predict")


def claim_verdicts(predictions: Predictions, claim: Claim, published: Published) -> Iterator[ClaimVerdict]:
    """The verdict on a claim; on check `values` one per published value. Raises UsageError."""
    figure, publication = published.figure(claim.figure), predictions.publication
    curve = publication.curve(claim.curves[0])
    if claim.check == "values":
        base, series = x_of(figure, curve, curve.base), curve.figures[figure.id]
        for point in points(published, figure.id, series, base=base):
            size = round(point.x / base * curve.base)
            predicted = band_of(predictions.replicates(curve.name, size).efficiency)
            low, high = point.efficiency - point.half_width, point.efficiency + point.half_width
            yield ClaimVerdict(
                figure=figure,
                publication=publication,
                claim=claim,
                words=series,
                quantity="efficiency",
                x=point.x,
                x_unit=figure.x_unit,
                low=low,
                high=high,
                predicted=predicted,
                verdict=verdict_of(predicted, low, high),
            )
        return
    ends = published_ends(claim, published)
    exact = claim.check in ("gain", "scaling_ends")
    bounds: dict[str, Any] = {"tolerance": 0.0 if exact else TOLERANCE, "ratio": claim.compared in _OF_RATIOS}
    predicted = worst_of(_predicted(predictions, claim, figure, curve), *ends, **bounds)
    yield ClaimVerdict(
        figure=figure,
        publication=publication,
        claim=claim,
        words=claim.statement,
        quantity=claim.compared,
        x=x_of(figure, curve, claim.sizes[1]) if claim.at else None,
        x_unit=figure.x_unit,
        low=ends[0],
        high=ends[1],
        predicted=predicted,
        verdict=verdict_of(predicted, *ends, **bounds),
    )


def verdict_of(
    predicted: Band,
    low: float | None,
    high: float | None,
    *,
    tolerance: float = TOLERANCE,
    ratio: bool = False,
) -> str:
    """The verdict on a band, given what is published, with an open end where that is None.

    Of a ratio the tolerance is one of what it differs from 1: 5 % of "2 to 3 % faster" are not 5 % of the speed.
    """
    bottom, top = -math.inf if low is None else low, math.inf if high is None else high
    if predicted.high < bottom or predicted.low > top:
        return DISAGREES
    below, above = (0.0 if math.isinf(end) else tolerance * abs(end - ratio) for end in (bottom, top))
    within = bottom - below <= predicted.low and predicted.high <= top + above
    return AGREES if within else CANNOT_TELL


def worst_of(bands: Sequence[Band], low: float | None, high: float | None, **bounds: Any) -> Band:
    """The band that fits least to what is said of all of them; the last of equal ones."""
    order = (AGREES, CANNOT_TELL, DISAGREES)
    return max(reversed(bands), key=lambda band: order.index(verdict_of(band, low, high, **bounds)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyPoint:
    """An efficiency as published at `x` of the axis; `half_width` is rounding and scatter, also of the base."""

    x: float
    efficiency: float
    half_width: float


def points(published: Published, figure: str, series: str, *, base: float) -> list[EfficiencyPoint]:
    """The published efficiencies beyond the base, ascending: from throughputs, as printed, or in words."""
    rows = [row for row in published.values_of(figure) if row.series == series and row.x]
    throughput, scatter, efficiency = (
        {row.x: row for row in rows if row.x and row.quantity == quantity}
        for quantity in ("throughput", f"throughput{HALF_WIDTH}", "efficiency")
    )
    if throughput:
        per_device = throughput[base].y / base
        # Relative, and added: both ends of a ratio are uncertain.
        error = {x: (scatter[x].y if x in scatter else row.rounding) / row.y for x, row in throughput.items()}
        found = [
            (x, row.y / x / per_device, (error[x] + error[base]) * row.y / x / per_device)
            for x, row in throughput.items()
        ]
    elif efficiency:
        found = [(x, row.y, row.rounding) for x, row in efficiency.items()]
    else:
        found = [
            (row.x_high, row.ends[0], _ABOUT)
            for row in published.statements_of(figure)
            if (row.series, row.quantity) == (series, "efficiency") and row.x_high and row.ends[0] is not None
        ]
    differ = 0.0 if scatter else REPEATED_RUNS
    return [
        EfficiencyPoint(x=x, efficiency=y, half_width=half + differ)
        for x, y, half in sorted(found)
        if x > base
    ]


def published_ends(claim: Claim, published: Published) -> tuple[float | None, float | None]:
    """The claim's own numbers where it has some, else the statement's. Raises UsageError if neither has any."""
    statement = statement_of(claim, published)
    if claim.low is not None or claim.high is not None:
        counted = statement is not None and statement.low is not None and statement.quantity == claim.compared
        return _of_repeated_runs(claim) if counted else (claim.low, claim.high)
    if statement and claim.check == "scaling_ends":
        return statement.x_low, statement.x_high
    if statement and statement.quantity == claim.compared:
        return statement.ends
    raise UsageError(
        f"a claim of {claim.figure}, {claim.statement!r}: no {claim.compared} in statements.csv; give low or "
        "high, with a reading"
    )


def _of_repeated_runs(claim: Claim) -> tuple[float | None, float | None]:
    """The reading of a number that was measured, wider by what repeated runs differ."""
    low, high = (
        None if end is None else end + side * REPEATED_RUNS * (1 if claim.compared == "efficiency" else end)
        for end, side in ((claim.low, -1), (claim.high, 1))
    )
    return low, high


def _predicted(predictions: Predictions, claim: Claim, figure: Figure, curve: AnyCurve) -> list[Band]:
    """What is predicted of the claim, at each of its sizes."""
    if claim.check == "scaling_ends":
        return [_scaling_ends(predictions, claim, curve)]
    first, last = claim.sizes
    sizes = [size for size in curve.sizes if first <= size < last] + [last]
    return [_predicted_at(predictions, claim, figure, curve, size) for size in sizes]


def _predicted_at(predictions: Predictions, claim: Claim, figure: Figure, curve: AnyCurve, size: int) -> Band:
    here = predictions.replicates(curve.name, size)
    if claim.check == "ratio":
        pairs = [names for names in (claim.curves, claim.or_curves) if names]
        rates = [[predictions.replicates(name, size).samples_per_second for name in pair] for pair in pairs]
        return band_of(np.concatenate([above / below for above, below in rates]))
    if claim.check == "gain":
        changed = predictions.replicates(curve.name, size, changed=claim.changed)
        return band_of(changed.efficiency - here.efficiency)
    others = [predictions.replicates(name, size) for name in claim.or_curves]
    found = [quantity_of(curve, replicates, claim.quantity, figure) for replicates in (here, *others)]
    values = [it for it in found if it is not None]
    if not values:
        raise UsageError(
            f"a claim of {claim.figure}: no {claim.quantity!r} of curve {curve.name}; choose one of: "
            f"{', '.join(QUANTITIES)}"
        )
    return band_of(np.concatenate(values))


def _scaling_ends(predictions: Predictions, claim: Claim, curve: AnyCurve) -> Band:
    """The size up to which each edge of the band keeps what is asked: its lower edge most, its upper one least."""
    bands = [
        (float(size), band_of(predictions.replicates(curve.name, size).efficiency)) for size in curve.sizes
    ]
    return end_of(bands, claim.threshold or (1.0, 1.0))


def end_of(bands: Sequence[tuple[float, Band]], threshold: tuple[float, float]) -> Band:
    """The last of ascending (size, band of the efficiency) up to which each edge of the band keeps what is asked."""
    least, most = min(threshold), max(threshold)

    def end(edge: str, asked: float) -> float:
        kept = takewhile(lambda pair: getattr(pair[1], edge) >= asked, bands)
        return max((size for size, _ in kept), default=bands[0][0])

    return Band(low=end("low", most), median=end("median", (least + most) / 2), high=end("high", least))
