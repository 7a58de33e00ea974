"""Predictions in a figure of measured points: a band and half-filled markers beside them, which no line joins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from dlscale.analysis.curves import Curve, Value, dodge
from dlscale.analysis.figures.drawing import GREY, line_style, looks_of, marker_style
from dlscale.analysis.findings.predicted_points import SimulatedPoint, doubts_of, origin_sentence
from dlscale.analysis.form import SCREEN, Form

BAND_ALPHA = 0.18
ASIDE = 2**0.035  # factor on the number of ranks, so that a point does not cover the measured one
_ALONE = 2**0.12  # half the width of the band of a single point, as a factor


@dataclass(frozen=True, slots=True, kw_only=True)
class BandCurve(Curve):
    """The predicted points of one backend, which are on no line, as those between them may not have been asked for."""

    @property
    def joined(self) -> bool:
        """Never: a line would look like that of what was measured."""
        return False


def band_curves(points: Iterable[SimulatedPoint], value: Value, form: Form = SCREEN) -> list[BandCurve]:
    """A curve for each name of the points that have `value` and are drawn, ascending in ranks."""
    drawn = [point for point in drawn_points(points, form) if value(point)]
    return [
        BandCurve(
            name=name,
            backend=(members := tuple(group))[0].record.backend,
            evidence=members[0].evidence,
            rows=tuple(sorted(members, key=lambda point: point.record.num_ranks)),
        )
        for name, group in groupby(drawn, key=lambda point: point.name)
    ]


def drawn_points(points: Iterable[SimulatedPoint], form: Form) -> list[SimulatedPoint]:
    """The points over the backends to draw."""
    return [point for point in points if not form.backends or point.record.backend in form.backends]


def draw_bands(
    axes: Axes, bands: Sequence[BandCurve], value: Value, *, among: Sequence[Curve], form: Form = SCREEN
) -> None:
    """Draw the points of each curve and the band around them, in the look that its name has `among` the curves."""
    looks = looks_of(among)
    names = list(looks)
    for band in bands:
        look = looks[band.name]
        factor = 1.0 if form.printed else ASIDE * dodge(names.index(band.name), len(names))
        places = [point.record.num_ranks * factor for point in band.rows]
        values = [value(point) for point in band.rows]
        low, high = ([getattr(one, side) for one in values] for side in ("low", "high"))
        if len(places) == 1:
            ends = [places[0] / _ALONE, places[0] * _ALONE]
            low, high = low * 2, high * 2
        else:
            ends = places
        axes.fill_between(ends, low, high, color=look.color, alpha=BAND_ALPHA, linewidth=0, zorder=1.4)
        axes.plot(
            places,
            [one.center for one in values if one],
            zorder=2.5,
            **line_style(look, joined=False),
            **marker_style(look, band.evidence),
        )


def band_handles(bands: Sequence[BandCurve]) -> list[Line2D]:
    """The legend's entry for bands; none without any."""
    style: dict[str, Any] = {"color": GREY, "linewidth": 7, "alpha": BAND_ALPHA, "solid_capstyle": "butt"}
    return [Line2D([], [], label="band of predictions", **style)] if bands else []


def band_notes(bands: Sequence[BandCurve]) -> list[str]:
    """Small print on what is predicted, and from what."""
    sentence = origin_sentence([point for band in bands for point in band.rows])
    return [sentence] if sentence else []


def with_doubts(warning: str, bands: Sequence[BandCurve]) -> str:
    """The figure's warning, and why its predictions are not to be trusted."""
    doubts = doubts_of([point for band in bands for point in band.rows])
    return "; ".join(text for text in (warning, doubts) if text)
