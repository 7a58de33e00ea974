"""Bounds in a figure of efficiency: what no point can lie above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from dlscale.analysis.figures.style import GREY

Points = Sequence[tuple[int, float]]
# Told apart by their dashes: grey is the colour of what nobody measured.
STYLES: dict[str, dict[str, Any]] = {
    "wire": {"linestyle": (0, (1, 1.5))},
    "memory": {"linestyle": (0, (4, 1.5))},
    "loader": {"linestyle": (0, (4, 1.5, 1, 1.5))},
}
_COMMON: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "zorder": 1.2}
_ROUND = 2**0.12  # by which a bound at a single number of ranks reaches to both sides of it


def draw_limits(axes: Axes, points: Mapping[str, Points]) -> None:
    """A line per kind of bound that is below 1 somewhere, through its values at the numbers of ranks."""
    for kind, values in binding(points).items():
        ranks = [ranks for ranks, _ in values]
        heights = [height for _, height in values]
        ends = [ranks[0] / _ROUND, *ranks, ranks[-1] * _ROUND]
        axes.plot(
            ends, [heights[0], *heights, heights[-1]], **_COMMON, **STYLES[kind], scalex=False, scaley=False
        )


def limit_handles(points: Mapping[str, Points]) -> list[Line2D]:
    """Legend entries of the lines that are drawn."""
    return [Line2D([], [], **_COMMON, **STYLES[kind], label=f"bound: {kind}") for kind in binding(points)]


def limit_text(points: Mapping[str, Points]) -> str:
    """For the small print: which bounds are drawn, which bind nowhere, which are not known."""
    drawn, known = binding(points), [kind for kind in STYLES if points.get(kind)]
    free = [kind for kind in known if kind not in drawn]
    unknown = [kind for kind in STYLES if kind not in known]
    told = (
        [f"Bounds that no point over a backend can exceed, relative to (a): {', '.join(drawn)}."]
        if drawn
        else []
    )
    told += [f"Bound by {', '.join(free)}: 100 %."] if free else []
    told += [f"Bound not known: {', '.join(unknown)}."] if unknown else []
    return " ".join(told)


def binding(points: Mapping[str, Points]) -> dict[str, Points]:
    """The bounds that are below 1 somewhere, in one order."""
    return {kind: points[kind] for kind in STYLES if any(height < 1 for _, height in points.get(kind, ()))}
