"""Published curves versus predictions from public inputs (`published`), and the universal scalability law beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dlscale.analysis.published.catalogue import Published, load_published
from dlscale.analysis.published.claims import DeviceCurve, Publication, x_of
from dlscale.analysis.published.predictions import Predictions
from dlscale.analysis.published.verdicts import DISAGREES, claim_verdicts, load_publications, points
from dlscale.analysis.render.text import markdown
from tests.validation.law import law_fit


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCurve:
    """A published curve over devices, with the prediction of each of its points."""

    publication: Publication
    curve: DeviceCurve
    title: str
    figure: str
    rows: tuple[dict[str, Any], ...]  # as `verdicts.COLUMNS`


def published_curves(published: Published) -> list[PublishedCurve]:
    """The curves that are held to every published value."""
    return [
        PublishedCurve(
            publication=publication,
            curve=curve,
            title=f"{published.figure(claim.figure).title}: {curve.name}",
            figure=claim.figure,
            rows=tuple(claim_verdicts(Predictions(publication), claim, published)),
        )
        for publication in load_publications(published)
        for claim in publication.claims
        for curve in publication.device_curves
        if claim.check == "values" and claim.curves == (curve.name,)
    ]


def published_lines() -> list[str]:
    """Markdown: the published points outside their band, curve by curve, the causes, and the law's predictions."""
    published = load_published()
    curves = published_curves(published)
    points_of = [row for curve in curves for row in curve.rows]
    inside = sum(row["verdict"] != DISAGREES for row in points_of)
    rows = [
        [
            curve.title,
            f"{sum(row['verdict'] != DISAGREES for row in curve.rows)} of {len(curve.rows)}",
            "; ".join(_outside(row) for row in curve.rows if row["verdict"] == DISAGREES),
        ]
        for curve in curves
    ]
    missed: dict[str, list[str]] = {}
    for curve in curves:
        for reason in dict.fromkeys(row["reason"] for row in curve.rows if row["verdict"] == DISAGREES):
            missed.setdefault(reason, []).append(curve.title)
    columns = ["curve", "points inside", "outside, by devices: published efficiency, predicted [5, 95] %"]
    return [
        f"{inside} of {len(points_of)} inside the band.",
        "",
        *markdown(pd.DataFrame(rows, columns=columns)).splitlines(),
        "",
        *(f"* Missed, {'; '.join(titles)}: {reason}." for reason, titles in missed.items()),
        "",
        *_law_lines(curves, published),
    ]


def _law_lines(curves: Sequence[PublishedCurve], published: Published) -> list[str]:
    rows, nearer = [], 0
    for entry in curves:
        base = x_of(published.figure(entry.figure), entry.curve, entry.curve.base)
        series = entry.curve.figures[entry.figure]
        curve = points(published, entry.figure, series, base)
        law, predicted = law_fit(curve, base), entry.rows[-1]["predicted"]
        if law is None:
            continue
        last, measured = curve[["x", "efficiency"]].iloc[-1]
        nearer += abs(predicted - measured) < abs(law - measured)
        numbers = (f"{number:.3f}" for number in (measured, predicted, law))
        rows.append([entry.title, f"{last:g}", *numbers])
    columns = ["curve", "devices", "published efficiency", "predicted", "universal scalability law"]
    return [
        "The law is fitted to the first three sizes of a curve beyond its base, the prediction to none of them. "
        f"The prediction is nearer to what is published for {nearer} of {len(rows)} curves:",
        "",
        *markdown(pd.DataFrame(rows, columns=columns)).splitlines(),
        "",
    ]


def _outside(row: dict[str, Any]) -> str:
    middle = (row["published_low"] + row["published_high"]) / 2
    predicted, low, high = (row[name] for name in ("predicted", "predicted_low", "predicted_high"))
    return f"{row['x']:g}: {middle:.3f}, {predicted:.3f} [{low:.3f}, {high:.3f}]"
