"""Claims of publications, read with checks of their sources, and the verdict on each as a frame.

Verdicts are in docs/published-figures.md. A published number is a range by its rounding and by how repeated runs
differ: by what is stated, else by 2 points of an efficiency and 2 % of other numbers. Words become a range by the
claim's reading. Nothing is fitted to a curve that is shown: an input from a figure that the file predicts is refused,
but for what that figure states of the curve's base.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.published.catalogue import FOLDER, Figure, Published, select
from dlscale.analysis.published.claims import AnyCurve, Claim, Publication, SystemCurve, sourced, x_of
from dlscale.analysis.published.predictions import Floats, Predictions, band_of, networks, node_of
from dlscale.analysis.published.values import HALF_WIDTH
from dlscale.base.definitions import load
from dlscale.base.errors import UsageError

AGREES, DISAGREES, CANNOT_TELL = "agrees", "disagrees", "cannot tell"
VERDICTS = (AGREES, DISAGREES, CANNOT_TELL)
TOLERANCE = 0.05  # of what is published, that a band may reach beyond it
REPEATED_RUNS = 0.02  # by which they differ where a publication does not say it
_ABOUT = 0.005  # efficiencies in words are rounded to a percent
_WIDE = "what is public leaves the prediction wider than the tolerance"
Ends = tuple[float | None, float | None]
# `text` says what is compared; `counted` once, where several figures have a claim.
COLUMNS = [
    *("figure", "publication", "claim", "check", "curves", "quantity", "x", "x_unit", "published_low"),
    *("published_high", "predicted", "predicted_low", "predicted_high", "evidence", "tolerance", "verdict"),
    *("counted", "reading", "reason", "text"),
]


def load_publications(published: Published, folder: Path = FOLDER) -> list[Publication]:
    """The publications beside these published values, checked against them. Raises UsageError."""
    return [load_publication(path, published) for path in sorted((folder / "claims").glob("*.toml"))]


def load_publication(path: Path, published: Published) -> Publication:
    """The publication in a file, checked: no input is from a figure that is predicted, every claim was published.

    Raises UsageError.
    """
    publication = load(Publication, str(path))
    published.named([*publication.figures, *(claim.figure for claim in publication.claims)])
    for place, problem in _problems(publication, published):
        raise UsageError(f"{path}, {place}: {problem}; correct it")
    return publication


def _problems(publication: Publication, published: Published) -> Iterator[tuple[str, str]]:
    curves, predicted = {curve.name: curve for curve in publication.curves}, publication.figures
    for device_curve in publication.device_curves:
        place, known = f"curve {device_curve.name}", ", ".join(networks())
        if device_curve.network not in networks():
            yield place, f"no network {device_curve.network!r}; choose one of: {known}"
        for name in device_curve.inputs.values():
            if name not in publication.inputs:
                yield place, f"no input {name!r}"
    for curve in publication.curves:
        for name, series in curve.figures.items():
            if series and select(published.values, figure=name, series=series).empty:
                yield f"curve {curve.name}", f"no series {series!r} is public in {name}"
    for claim in publication.claims:
        place = f"a claim of {claim.figure}"
        for name in (*claim.curves, *claim.or_curves):
            if name not in curves:
                yield place, f"no curve {name!r}"
        if claim.changed and not isinstance(curves[claim.curves[0]], SystemCurve):
            yield place, "check gain is of a curve on a system"
        if claim.check == "values" and not curves[claim.curves[0]].figures.get(claim.figure):
            yield place, f"curve {claim.curves[0]} is of no series there"
        if claim.statement and statement_of(claim, published) is None:
            yield place, f"no statement {claim.statement!r} is public"
        if (pair := claim.reference) and len(reference_pair(claim, published)) < 2:
            series = " and ".join(map(repr, pair.series))
            yield place, f"no {series}, {pair.quantity} at {claim.at} in the panel's {pair.file}.json"
    sources = [(place, entry.source) for place, entry in sourced(publication)]
    sources += [(curve.name, node_of(curve)[1].source) for curve in publication.system_curves]
    for place, source in sources:
        for name in predicted:
            if name in source or published.figure(name).title in source:
                yield place, f"its source is {name}, the figure that it predicts"
    for place, origin in ((place, it) for place, entry in sourced(publication) for it in entry.published):
        if published.at(origin).empty:
            what = f"{origin.series or 'no series'}, {origin.quantity} at {origin.x} in {origin.figure}"
            yield place, f"no such row in results/published: {what}"
        figure = published.figure(origin.figure)
        base = min(x_of(figure, curve, curve.base) for curve in publication.curves)
        if figure.id in predicted and (origin.x or 0) > base:
            text = f"it is from {figure.id}, the figure that it predicts, at {origin.x:g} {figure.x_unit}"
            yield place, f"{text}; only what that states up to {base:g} is an input"


def statement_of(claim: Claim, published: Published) -> Any:
    """The row of the statement that a claim is made of; None if it is not public."""
    rows = select(published.values, figure=claim.figure, statement=claim.statement)
    return rows.iloc[0] if claim.statement and len(rows) else None


def reference_pair(claim: Claim, published: Published) -> pd.DataFrame:
    """The rows of both series that were measured here, at the claim's x; fewer where one is missing."""
    if not (pair := claim.reference):
        return published.measured[:0]
    place = {"panel": pair.panel, "quantity": pair.quantity, "x": claim.sizes[1]}
    rows = select(published.measured, source=pair.file, **place)
    rows = pd.concat([select(rows, series=name).tail(1) for name in pair.series])
    return rows.assign(**{end: rows[end].fillna(rows["y"]) for end in ("low", "high")})


def verdicts(
    published: Published, publications: Sequence[Publication], names: Collection[str] = ()
) -> pd.DataFrame:
    """A row per claim, on check `values` per published value, by figure in the catalogue's order.

    A figure without a claim has a row per statement, with what a prediction of it lacks; one without a statement either
    has a row of that alone. Raises UsageError for an unknown figure.
    """
    figures = published.named(names)
    rows: dict[str, list[dict[str, Any]]] = {figure.id: [] for figure in figures}
    for publication in publications:
        predictions = Predictions(publication)
        for claim in publication.claims:
            shown = [name for name in (claim.figure, *claim.also) if name in rows and claim.curves]
            judged = list(claim_verdicts(predictions, claim, published)) if shown else []
            for place, name in enumerate(shown):
                rows[name] += [row | {"figure": name, "counted": not place} for row in judged]
    for figure in figures:
        rows[figure.id] = rows[figure.id] or list(_in_words(published, figure))
    return pd.DataFrame([row for of_figure in rows.values() for row in of_figure], columns=COLUMNS)


def _in_words(published: Published, figure: Figure) -> Iterator[dict[str, Any]]:
    said = select(published.values, figure=figure.id)["statement"]
    row = {"figure": figure.id, "curves": [], "tolerance": TOLERANCE, "text": "", "verdict": CANNOT_TELL}
    for words in dict.fromkeys(said[said != ""]) or [figure.title]:
        yield row | {"claim": words, "counted": True, "reason": figure.missing or "nothing to predict"}


def claim_verdicts(predictions: Predictions, claim: Claim, published: Published) -> Iterator[dict[str, Any]]:
    """The verdict on a claim; on check `values` one per published value. Raises UsageError."""
    figure, publication = published.figure(claim.figure), predictions.publication
    curve = publication.curve(claim.curves[0])
    row: dict[str, Any] = {"publication": publication.name, "check": claim.check, "curves": [*claim.curves]}
    row |= {"x_unit": figure.x_unit, "evidence": "simulated", "tolerance": TOLERANCE}
    row |= {"claim": claim.statement, "quantity": claim.compared, "reading": claim.reading or None}
    if claim.check == "values":
        base, series = x_of(figure, curve, curve.base), curve.figures[figure.id]
        row |= {"claim": series, "quantity": "efficiency"}
        for x, efficiency, half in points(published, figure.id, series, base).itertuples(index=False):
            band = band_of(predictions.replicates(curve.name, round(x / base * curve.base)).efficiency)
            yield _judged(claim, row | {"x": x}, band, (efficiency - half, efficiency + half))
        return
    ends, exact = published_ends(claim, published), claim.check in ("gain", "scaling_ends")
    bounds: dict[str, Any] = {"tolerance": 0.0 if exact else TOLERANCE}
    bounds["ratio"] = claim.compared in ("relative_throughput", "relative_time")
    band = worst_of(_predicted(predictions, claim, figure, curve), ends, **bounds)
    x = x_of(figure, curve, claim.sizes[1]) if claim.at else None
    yield _judged(claim, row | {"x": x}, band, ends, **bounds)


def _judged(claim: Claim, row: dict[str, Any], band: Floats, ends: Ends, **bounds: Any) -> dict[str, Any]:
    """The row with what is published and predicted, the verdict and why it is that, and what is compared, in words."""
    verdict = verdict_of(band, ends, **bounds)
    reasons = {DISAGREES: claim.reason or "no reason is written", CANNOT_TELL: _WIDE}
    at = "up to" if len(set(claim.sizes)) > 1 else "at"
    what = row["quantity"].replace("_", " ") + (f" {at} {row['x']:g} {row['x_unit']}" if row["x"] else "")
    curves = [curve for curve in claim.curves if curve != row["claim"]]
    whose = " / ".join(curves) + "".join(f" or {it}" for it in claim.or_curves if it not in curves)
    numbers = dict(zip(("predicted_low", "predicted", "predicted_high"), band.tolist(), strict=True))
    numbers |= {"published_low": ends[0], "published_high": ends[1]}
    text = ": ".join(filter(None, (whose, what)))
    return row | numbers | {"verdict": verdict, "reason": reasons.get(verdict), "text": text}


def verdict_of(band: Floats, ends: Ends, *, tolerance: float = TOLERANCE, ratio: bool = False) -> str:
    """The verdict on a band (low, median, high), given what is published, with an open end where that is None.

    Of a ratio the tolerance is one of what it differs from 1: 5 % of "2 to 3 % faster" are not 5 % of the speed.
    """
    least, _, most = band
    bottom, top = (-math.inf if ends[0] is None else ends[0]), (math.inf if ends[1] is None else ends[1])
    if most < bottom or least > top:
        return DISAGREES
    below, above = (0.0 if math.isinf(end) else tolerance * abs(end - ratio) for end in (bottom, top))
    return AGREES if bottom - below <= least and most <= top + above else CANNOT_TELL


def worst_of(bands: Sequence[Floats], ends: Ends, **bounds: Any) -> Floats:
    """The band that fits least to what is said of all of them; the last of equal ones."""
    order = (AGREES, CANNOT_TELL, DISAGREES)
    return max(reversed(bands), key=lambda band: order.index(verdict_of(band, ends, **bounds)))


def points(published: Published, figure: str, series: str, base: float) -> pd.DataFrame:
    """The published efficiencies beyond the base, ascending: from throughputs, as printed, or in words.

    `half_width` is rounding and scatter, also of the base.
    """
    rows = select(published.values, figure=figure, series=series)
    rows = rows[rows["x"] > 0].assign(half=rows["high"] - rows["y"])
    values = select(rows, statement="").set_index("x")
    rates, scatter = (select(values, quantity=name) for name in ("throughput", f"throughput{HALF_WIDTH}"))
    printed = select(values, quantity="efficiency")
    said = rows[rows["statement"].ne("") & rows["quantity"].eq("efficiency") & rows["low"].notna()]
    if len(rates):
        efficiency = rates["y"] / rates.index / (rates["y"][base] / base)
        error = scatter["y"].reindex(rates.index).fillna(rates["half"]) / rates["y"]
        half = (error + error[base]) * efficiency  # relative, and added: both ends of a ratio are uncertain
    elif len(printed):
        efficiency, half = printed["y"], printed["half"]
    else:
        efficiency = said.set_index("x_high")["low"]
        half = efficiency * 0 + _ABOUT
    half = half + (0.0 if len(scatter) else REPEATED_RUNS)
    found = pd.DataFrame({"x": efficiency.index, "efficiency": [*efficiency], "half_width": [*half]})
    return found[found["x"] > base].sort_values("x")


def published_ends(claim: Claim, published: Published) -> Ends:
    """The claim's own numbers where it has some, else the statement's. Raises UsageError if neither has any."""
    said, ends = statement_of(claim, published), (claim.low, claim.high)
    same = said is not None and said["quantity"] == claim.compared
    if ends != (None, None):
        # The reading of a number that was measured is wider by what repeated runs differ.
        spread = REPEATED_RUNS if same and not math.isnan(said["low"]) else 0.0
        widths = (spread if claim.compared == "efficiency" else spread * (end or 0.0) for end in ends)
        low, high = (
            None if it[0] is None else it[0] + it[1] * it[2] for it in zip(ends, (-1, 1), widths, strict=True)
        )
        return low, high
    names = ("x", "x_high") if claim.check == "scaling_ends" else ("low", "high")
    if said is not None and (claim.check == "scaling_ends" or same):
        low, high = (None if math.isnan(said[name]) else float(said[name]) for name in names)
        return low, high
    raise UsageError(
        f"a claim of {claim.figure}, {claim.statement!r}: no {claim.compared} in statements.csv; give low or "
        "high, with a reading"
    )


def _predicted(predictions: Predictions, claim: Claim, figure: Figure, curve: AnyCurve) -> list[Floats]:
    """Bands of what is predicted of the claim, at each of its sizes."""
    if claim.check == "scaling_ends":
        bands = [(size, band_of(predictions.replicates(curve.name, size).efficiency)) for size in curve.sizes]
        return [end_of(bands, claim.threshold or (1.0, 1.0))]
    first, last = claim.sizes
    sizes = [size for size in curve.sizes if first <= size < last] + [last]
    return [band_of(_replicates(predictions, claim, figure, curve, size)) for size in sizes]


def _replicates(predictions: Predictions, claim: Claim, figure: Figure, curve: AnyCurve, size: int) -> Floats:
    if claim.check == "ratio":
        pairs = filter(None, (claim.curves, claim.or_curves))
        return np.concatenate([predictions.ratio(pair, size) for pair in pairs])
    if claim.check == "gain":
        changed, here = (predictions.replicates(curve.name, size, it) for it in (claim.changed, ""))
        return changed.efficiency - here.efficiency
    curves = [predictions.replicates(name, size) for name in (curve.name, *claim.or_curves)]
    values = [it.quantity(claim.quantity, curve, figure) for it in curves]
    known = [it for it in values if it is not None]
    if len(known) < len(values):
        text = f"no {claim.quantity!r} of curve {curve.name}; choose another"
        raise UsageError(f"a claim of {claim.figure}: {text}")
    return np.concatenate(known)


def end_of(bands: Sequence[tuple[float, Floats]], threshold: tuple[float, float]) -> Floats:
    """The last of ascending (size, band of the efficiency) up to which each edge of the band keeps what is asked.

    The lower edge is asked for the higher threshold, the upper one for the lower.
    """
    asked = (max(threshold), sum(threshold) / 2, min(threshold))

    def end(edge: int) -> float:
        kept = takewhile(lambda pair: pair[1][edge] >= asked[edge], bands)
        return max((size for size, _ in kept), default=bands[0][0])

    return np.array([end(edge) for edge in range(3)], dtype=float)
