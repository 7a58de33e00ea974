"""Code shared by all figures: curves of a family's rows, their looks, and points with intervals over the rank axis.

Figures are readable at column width, in grey, and by colour-blind readers. Colours are those of Okabe & Ito,
"Color Universal Design" (2008), except their yellow, which is too pale for a line on paper: an olive of Tol's
"muted" scheme (2021) replaces it. A backend keeps its colour, marker and line style in every figure, so
that figures of different studies can be compared. The marker's filling shows the kind of evidence. A line joins
only points of one kind of evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import nan
from typing import Any, Literal

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from dlscale.analysis.curves import Curve, Point, Value, dodge
from dlscale.analysis.form import PRINTED_POINTS, SCREEN, Form
from dlscale.analysis.render.theme import Look, looks_for
from dlscale.analysis.statistics import Interval

SINGLE_COLUMN_INCHES = 3.5
DOUBLE_COLUMN_INCHES = 7.0
DOTS_PER_INCH = 300  # of the PNG
MOST_TICKS = 10  # of an axis of ranks

GREY = "#777777"
RIM = "#333333"
IDEAL: dict[str, Any] = {"color": "#aaaaaa", "linewidth": 0.9, "zorder": 1, "label": "ideal"}
IDEAL_MARK: dict[str, Any] = {"color": GREY, "linewidth": 1.6, "zorder": 1.5, "solid_capstyle": "butt"}
REFERENCE: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "linestyle": (0, (1, 1.5)), "zorder": 1}

_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same glyphs everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # TrueType: text stays text, and publishers accept it
}


# Marker filling for each kind of evidence, in the order of the legend.
EVIDENCE: dict[str, Literal["full", "left", "bottom"]] = {
    "measured": "full",
    "emulated": "full",  # with white
    "simulated": "left",
    "published": "bottom",
}


@contextmanager
def drawing(form: Form = SCREEN) -> Iterator[None]:
    """Context in which figures look the same, whatever the user's own matplotlib settings; printed text is larger."""
    sizes = ("xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    printed = dict.fromkeys(sizes, PRINTED_POINTS) if form.printed else {}
    with matplotlib.style.context(["default", _RC | printed]):
        yield


def looks_of(curves: Iterable[Curve]) -> dict[str, Look]:
    """A look for each name of a curve."""
    return looks_for({curve.name: curve.backend for curve in curves})


def line_style(look: Look, *, joined: bool) -> dict[str, Any]:
    """Keywords for a curve's line, which is drawn only if it joins points."""
    return {"color": look.color, "linewidth": 1.1, "linestyle": (0, look.dashes) if joined else ""}


def marker_style(look: Look | None, evidence: str) -> dict[str, Any]:
    """Keywords for a curve's markers, grey without a look; a dark rim keeps light colours visible on paper."""
    color = look.color if look else "#888888"
    return {
        "marker": look.marker if look else "o",
        "markersize": 4.2,
        "fillstyle": EVIDENCE[evidence],
        "markerfacecolor": "white" if evidence == "emulated" else color,
        "markerfacecoloralt": "white",
        "markeredgecolor": RIM if evidence == "measured" else color,
        "markeredgewidth": 0.8,
    }


def draw_curves(
    axes: Axes,
    curves: Sequence[Curve],
    value: Value,
    *,
    among: Sequence[Curve] | None = None,
    form: Form = SCREEN,
) -> None:
    """Draw each curve's points with their intervals, and a line only if the curve is `joined`.

    A curve's offset and look follow from the position of its name in `among`, by default in `curves`. In print there
    is no offset: points are exactly at their number of ranks.
    """
    looks = looks_of(curves if among is None else among)
    names = list(looks)
    for curve in curves:
        look = looks[curve.name]
        factor = 1.0 if form.printed else dodge(names.index(curve.name), len(names))
        points = [(row.cell.num_ranks, interval) for row in curve.rows if (interval := value(row))]
        axes.errorbar(
            [num_ranks * factor for num_ranks, _ in points],
            [interval.center for _, interval in points],
            yerr=np.transpose([whiskers(interval) for _, interval in points]),
            # Dark and in front, so that an interval smaller than its marker is visible inside it. In print bars lie on
            # top of each other, and only their colour says whose they are.
            barsabove=True,
            ecolor=look.color if form.printed else RIM,
            elinewidth=0.7,
            capsize=1.8,
            zorder=3,
            label=curve.name,
            **line_style(look, joined=curve.joined),
            **marker_style(look, curve.evidence),
        )


def whiskers(interval: Interval) -> tuple[float, float]:
    """Lengths of the bars below and above a point, for `errorbar`; one side alone has none on the other.

    NaN draws no bar: a point without an interval must not look like one with a tiny interval.
    """
    low, high = interval.low, interval.high
    if low is None and high is None:
        return nan, nan
    return (
        0.0 if low is None else interval.center - low,
        0.0 if high is None else high - interval.center,
    )


def curve_handles(curves: Sequence[Curve]) -> list[Line2D]:
    """One legend entry per name, shared by all kinds of evidence."""
    handles = []
    for name, look in looks_of(curves).items():
        own = [curve for curve in curves if curve.name == name]
        joined = any(curve.joined for curve in own)
        style = line_style(look, joined=joined) | marker_style(look, own[0].evidence)
        handles.append(Line2D([], [], label=name, **style))
    return handles


def evidence_handles(curves: Sequence[Curve], form: Form = SCREEN) -> list[Line2D]:
    """Legend entries for the markers' filling, one per kind of evidence in the figure.

    In print the only kind has none; `evidence_text` says in the caption which it is.
    """
    kinds = {curve.evidence for curve in curves}
    if form.printed and len(kinds) == 1:
        return []
    return [
        Line2D([], [], linestyle="", label=kind, **marker_style(None, kind))
        for kind in EVIDENCE
        if kind in kinds
    ]


def evidence_text(curves: Iterable[Curve], form: Form) -> list[str]:
    """The sentence of a printed figure's caption that names the only kind of evidence, which its legend leaves out."""
    kinds = {curve.evidence for curve in curves}
    return [f"All points are {min(kinds)}."] if form.printed and len(kinds) == 1 else []


def rank_axis(axes: Axes, rows: Sequence[Point]) -> None:
    """Set a base-2 axis of ranks with plain numbers; if the number of nodes varies, it is shown below the ranks.

    Of more than MOST_TICKS numbers some are left out, evenly.
    """
    nodes: dict[int, set[int]] = {}
    for row in rows:
        nodes.setdefault(row.cell.num_ranks, set()).add(row.cell.num_nodes)
    ranks = sorted(nodes)
    axes.set_xscale("log", base=2)
    axes.set_xlim(ranks[0] * 2**-0.45, ranks[-1] * 2**0.45)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(ranks[:: -(-len(ranks) // MOST_TICKS)]))
    kinds = set().union(*nodes.values())
    if len(kinds) == 1:
        (num_nodes,) = kinds
        axes.set_xlabel(f"ranks, on {num_nodes} node{'s' * (num_nodes > 1)}")
        labels = {count: f"{count}" for count in ranks}
    else:
        axes.set_xlabel("ranks, below them nodes")
        labels = {count: f"{count}\n{'/'.join(map(str, sorted(nodes[count])))}" for count in ranks}
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: labels.get(round(value), "")))
