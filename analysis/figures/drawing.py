"""The look of all figures: sizes, colours, and the styles of lines and markers.

Figures are readable at column width, in grey, and by colour-blind readers. Colours are those of Okabe & Ito,
"Color Universal Design" (2008), except their yellow, which is too pale for a line on paper: an olive of Tol's
"muted" scheme (2021) replaces it. A backend keeps its colour, marker and line style in every figure, so
that figures of different studies can be compared. The kind of evidence is told by shape and line, as they are seen on
paper: what was measured is a full marker with a dark rim, what was emulated an open one, what is published a marker of
thin lines without a face, and what is simulated a small one on a dotted line. A line joins only points of one kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes

from dlscale.analysis.form import PRINTED_POINTS, SCREEN, Form
from dlscale.analysis.render.theme import Look

SINGLE_COLUMN_INCHES = 3.5
DOUBLE_COLUMN_INCHES = 7.0
DOTS_PER_INCH = 300  # of the PNG
MOST_TICKS = 10  # of an axis of ranks
CHARACTER_INCHES, LINE_INCHES = 0.07, 0.13  # a digit and a line of 8 pt

GREY = "#777777"
RIM = "#333333"
IDEAL: dict[str, Any] = {"color": "#aaaaaa", "linewidth": 0.9, "zorder": 1, "label": "ideal"}
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


# Size of the markers of each kind of evidence, in the order of the legend: told apart at the size of a printed column.
EVIDENCE = {"measured": 4.2, "emulated": 4.2, "simulated": 2.4, "published": 6.2}
WHITE = {"emulated"}
# What is published has markers of lines alone, one for each marker of a curve's look.
LINES: dict[str, Any] = {"o": "x", "s": "+", "^": "2", "v": "1", "D": (4, 2, 22), "h": "3", "p": "4"}
LINES |= {"P": (6, 2, 0), "X": (8, 2, 0)}  # stars of so many rays


@contextmanager
def drawing(form: Form = SCREEN) -> Iterator[None]:
    """Context in which figures look the same, whatever the user's own matplotlib settings; printed text is larger."""
    sizes = ("xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    printed = dict.fromkeys(sizes, PRINTED_POINTS) if form.printed else {}
    with matplotlib.style.context(["default", _RC | printed]):
        yield


def inches_wide(axes: Axes) -> float:
    """The width of the figure that these axes are in."""
    return float(axes.figure.bbox.width / axes.figure.dpi)


def line_style(look: Look, *, joined: bool) -> dict[str, Any]:
    """Keywords for a curve's line, which is drawn only if it joins points."""
    return {"color": look.color, "linewidth": 1.1, "linestyle": (0, look.dashes) if joined else ""}


def marker_style(look: Look | None, evidence: str) -> dict[str, Any]:
    """Keywords for a curve's markers, grey without a look; a dark rim keeps light colours visible on paper."""
    color, marker = (look.color, look.marker) if look else ("#888888", "o")
    published = evidence == "published"
    return {
        "marker": LINES[marker] if published else marker,
        "markersize": EVIDENCE[evidence],
        "markerfacecolor": "white" if evidence in WHITE else color,
        "markeredgecolor": RIM if evidence == "measured" else color,
        "markeredgewidth": 1.5 if published else 0.8,
    }
