"""Drawing what a publication says in words: a mark at one place, a band or a thick line over a range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from dlscale.analysis.figures.style import RIM, Look, line_style, marker_style
from dlscale.analysis.published.catalogue import Figure
from dlscale.analysis.published.marks import Plot, Said, aside
from dlscale.analysis.published.units import factor

PUBLISHED = "published"
SMALL = 6.3  # points, of words inside a panel
_BAND: dict[str, Any] = {"color": "#b3b3b3", "alpha": 0.45, "linewidth": 0, "zorder": 0.5}
_THICK: dict[str, Any] = {"color": "#b3b3b3", "linewidth": 4, "solid_capstyle": "butt", "zorder": 1.2}
_WORDS: dict[str, Any] = {
    "fontsize": SMALL,
    "color": "#333333",
    "zorder": 4,
    "textcoords": "offset points",
    "bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
}


def is_mark(one: Said) -> bool:
    """Whether a statement is a point: a number at one place."""
    return one.low is not None and one.low == one.high and one.x_low is not None and one.x_low == one.x_high


def draw_said(axes: Axes, plot: Plot, figure: Figure, found: Mapping[str, Look]) -> None:
    """All statements of a panel that have numbers; equal words stand there once."""
    told: set[str] = set()
    marks = [(one.x_low, figure.label(one.statement.series)) for one in plot.said if is_mark(one)]
    for one in plot.said:
        words = "" if one.statement.label in told else one.statement.label
        told.add(words)
        if is_mark(one):
            name = figure.label(one.statement.series)
            here = [other for x, other in marks if x == one.x_low]
            shift = aside(name, here) if plot.panel.aside else 1.0
            _mark(axes, one, shift, found[name], words)
        elif one.quantity == "scaling_ends":
            _end(axes, one, words)
        elif one.quantity == "linear":
            _linear(axes, one, plot, figure, words)
        else:
            _range(axes, one, words)


def _mark(axes: Axes, one: Said, shift: float, look: Look, words: str) -> None:
    x, y = (one.x_low or 0) * shift, one.high or 0
    axes.plot([x], [y], **line_style(look, joined=False), **marker_style(look, PUBLISHED), zorder=3)
    _beside(axes, words, x, y)


def _end(axes: Axes, one: Said, words: str) -> None:
    """Where efficient scaling ends: a band over all heights."""
    low, high = one.x_low or 0, one.x_high or 0
    axes.axvspan(low, high, **_BAND)
    place: dict[str, Any] = {
        "xycoords": ("data", "axes fraction"),
        "xytext": (4, 0),
        "ha": "left",
        "va": "bottom",
    }
    axes.annotate(words.replace(": ", ":\n"), (high, 0.05), **place, **_WORDS)


def _linear(axes: Axes, one: Said, plot: Plot, figure: Figure, words: str) -> None:
    """Along the ideal line as far as it is said to hold."""
    ends = [one.x_low or 0, one.x_high or 0]
    whole = 1 / factor(plot.panel.layout, plot.panel.y_unit)
    heights = [end / figure.base_x for end in ends] if plot.panel.layout == "speed_up" else [whole, whole]
    axes.plot(ends, heights, **_THICK)
    _beside(axes, words, ends[1], heights[1], down=4, up=7)


def _range(axes: Axes, one: Said, words: str) -> None:
    """Over the places it is said of, or over all; an open end is an arrow."""
    ends = axes.get_xlim()
    low_x, high_x = one.x_low or ends[0], one.x_high or ends[1]
    if one.low is None or one.high is None:
        edge = (one.high if one.low is None else one.low) or 0
        style: dict[str, Any] = {
            "marker": "v" if one.low is None else "^",
            "color": RIM,
            "markersize": 4,
            "linestyle": "",
        }
        axes.plot([low_x], [edge], **style, zorder=3)
        _beside(axes, words, low_x, edge)
    elif low_x == high_x:
        axes.plot([low_x, low_x], [one.low, one.high], **_THICK | {"linewidth": 5, "color": "#8c8c8c"})
        _beside(axes, words, low_x, (one.low + one.high) / 2)
    elif one.low == one.high:
        axes.plot([low_x, high_x], [one.low, one.low], **_THICK)
        _beside(axes, words, low_x, one.low, down=8)
    else:
        axes.fill_between([low_x, high_x], one.low, one.high, **_BAND)
        _beside(axes, words, low_x, one.high, down=-6)


def _beside(axes: Axes, words: str, x: float, y: float, *, down: float = 0, up: float | None = None) -> None:
    """Next to a place, on the side that has room: to its right `down` points below it, to its left `up` above."""
    if not words:
        return
    low, high = axes.get_xlim()
    middle = (low * high) ** 0.5 if axes.get_xscale() == "log" else (low + high) / 2
    right = x <= middle
    shift = -down if right or up is None else up
    style = {"ha": "left" if right else "right", "va": "center", **_WORDS}
    axes.annotate(words, (x, y), xytext=(6 if right else -6, shift), **style)
