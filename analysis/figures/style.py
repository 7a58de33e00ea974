"""How figures look: readable at column width, in grey, and to colour-blind eyes.

Colours are those of Okabe & Ito, "Color Universal Design" (2008), but for their yellow, which is too pale for
a line on paper: an olive of Tol's "muted" scheme (2021) takes its place. A backend keeps its colour, marker
and line style in every figure, so that figures of different studies can be laid side by side. Evidence shows
in the marker's filling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib.style

from dlscale.analysis.figures.curves import Curve

SINGLE_COLUMN_INCHES = 3.5
DOUBLE_COLUMN_INCHES = 7.0
DOTS_PER_INCH = 300  # of the PNG

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


@dataclass(frozen=True, slots=True)
class Look:
    """Of one curve."""

    color: str
    marker: str
    dashes: tuple[float, tuple[float, ...]]  # matplotlib's: offset, (on, off, ...) in line widths


_SOLID: tuple[float, tuple[float, ...]] = (0, ())
_LOOKS = {
    "none": Look("#000000", "o", _SOLID),
    "ring": Look("#0072B2", "s", _SOLID),
    "mpi": Look("#D55E00", "^", (0, (5, 1.5))),
    "gloo": Look("#009E73", "D", (0, (3, 1.2, 1, 1.2))),
    "nccl": Look("#E69F00", "v", (0, (1, 1))),
    "horovod": Look("#CC79A7", "P", (0, (7, 2))),
    "tf_collective": Look("#56B4E9", "X", (0, (4, 1, 1, 1, 1, 1))),
    "grpc_ps": Look("#999933", "h", (0, (2, 1))),
}
# How a marker of each kind of evidence is filled, in the order of the legend.
EVIDENCE: dict[str, Literal["full", "left", "bottom"]] = {
    "measured": "full",
    "emulated": "full",  # with white
    "simulated": "left",
    "published": "bottom",
}


@contextmanager
def drawing() -> Iterator[None]:
    """Within it figures look the same whatever the user's own matplotlib settings are."""
    with matplotlib.style.context(["default", _RC]):
        yield


def looks_of(curves: Sequence[Curve]) -> dict[str, Look]:
    """A look for each name: the backend's own; for a second set of options, one that no backend here has."""
    backends = {curve.name: curve.backend for curve in curves}
    spare = [look for backend, look in _LOOKS.items() if backend not in backends.values()]
    looks: dict[str, Look] = {}
    for name, backend in backends.items():
        own = _LOOKS.get(backend)
        if own is None or own in looks.values():
            own = spare.pop(0) if spare else list(_LOOKS.values())[len(looks) % len(_LOOKS)]
        looks[name] = own
    return looks


def line_style(look: Look, *, joined: bool) -> dict[str, Any]:
    """Keywords for a curve's line, which is there only if it joins points."""
    return {"color": look.color, "linewidth": 1.1, "linestyle": look.dashes if joined else ""}


def marker_style(look: Look | None, evidence: str) -> dict[str, Any]:
    """Keywords for a curve's markers, grey for none's; a dark rim keeps light colours visible on paper."""
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
