"""The looks of figures: a backend keeps its colour and marker everywhere; readable in grey and by the colour-blind.

Colours are those of Okabe and Ito (2008), with an olive of Tol's in the place of their yellow.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd

from dlscale.analysis.text import interval
from dlscale.collectives.capabilities import CONTROL, ROWS

if TYPE_CHECKING:  # importing it takes half a second, which numbers without a figure need not
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis
else:
    Axes = Any

LOOKS = {row.name: row.look for row in ROWS}  # (colour, marker)
PLAIN = LOOKS[CONTROL]
PHASES = (  # of parts of one thing
    *("#BBBBBB", "#777777", "#88CCEE", "#44AA99", "#DDCC77", "#CC6677", "#AA4499", "#9999DD"),
)
QUIET, KEPT = "#999999", "#0072B2"
# How kinds of evidence differ: measured is filled; no line joins two kinds.
EVIDENCE_LOOKS: dict[str, dict[str, Any]] = {
    "measured": {},
    "emulated": {"markerfacecolor": "white"},
    "simulated": {"markerfacecolor": "none", "linestyle": "--"},
    "published": {"markerfacecolor": "none", "linestyle": ":"},
}
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "dlscale",
    "text.parse_math": False,  # names from records may have dollar signs
}


def use() -> None:
    """Draw without a display, in this style, from now on."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams.update(STYLE)


@contextmanager
def used(more: dict[Any, Any] | None = None) -> Iterator[None]:
    """Draw without a display, in this style, with more settings of matplotlib's."""
    import matplotlib as mpl

    mpl.use("agg")
    with mpl.rc_context({**STYLE, **(more or {})}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box is drawn for it; SVG has the text
        yield


def curves(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    """Each curve of one kind of evidence: its name, its rows by ranks, and the keywords of its look.

    A second curve of a backend gets a spare look. Two kinds of evidence are two curves.
    """
    taken: dict[str, tuple[str, str]] = {}
    spare = [look for backend, look in LOOKS.items() if backend not in set(rows["backend"])]
    kinds = rows["evidence"] if "evidence" in rows else pd.Series("measured", rows.index)
    for (name, kind), own in rows.groupby([rows["curve"], kinds], sort=False):
        if name not in taken:
            look = LOOKS.get(own["backend"].iloc[0], PLAIN)
            taken[name] = spare.pop(0) if look in taken.values() and spare else look
        color, marker = taken[name]
        label = name if kind in ("measured", "") else f"{name}, {kind}"
        look_of_kind = EVIDENCE_LOOKS.get(kind, {})
        yield label, own.sort_values("num_ranks"), {"color": color, "marker": marker, **look_of_kind}


def lengths(center: pd.Series, low: pd.Series, high: pd.Series) -> list[pd.Series]:
    """The lengths of error bars, 0 without limits; by rounding alone a limit may be beyond its center."""
    return [(center - low).clip(lower=0).fillna(0), (high - center).clip(lower=0).fillna(0)]


def points(axes: Axes, rows: pd.DataFrame, name: str, *, x: str = "num_ranks", factor: float = 1.0) -> None:
    """The interval `name` of each curve over `x`, joined where no x is there twice; hovering shows a point's text."""
    for curve, own, look in curves(rows):
        own = own.sort_values(x)
        y = factor * own[name].astype(float)
        low, high = (factor * own[f"{name}{end}"].astype(float) for end in ("_low", "_high"))
        joined = {} if own[x].is_unique else {"linestyle": "none"}
        errors = lengths(y, low, high)
        axes.errorbar(own[x], y, yerr=errors, capsize=2, **{"label": curve, **look, **joined})
        for row in own[[x, *(name + end for end in ("", "_low", "_high", "_n"))]].to_dict("records"):
            place, text = f"{row[x]:g} {x.removeprefix('num_')}", interval(row, name, factor=factor)
            tip = f"{curve}, {place}: {text}, n = {row[f'{name}_n']:g}"
            axes.scatter(row[x], factor * row[name], s=150, alpha=0).set_gid(f"tip:{tip}")


def log_axis(axis: Axis, *, base: float = 2) -> None:
    """Powers of `base` in plain digits, or round numbers where fewer than three powers are in view.

    Typeset exponents are slow, and no easier to read.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    class Ticks(LogLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            powers = super().tick_values(vmin, vmax)
            if sum(vmin <= power <= vmax for power in powers) >= 3:
                return powers
            return [tick for tick in MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(vmin, vmax) if tick > 0]

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})  # type: ignore[attr-defined]
    axis.set_major_locator(Ticks(base))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")


def rank_axis(axes: Axes, rows: pd.DataFrame, *, x: str = "num_ranks", label: str = "ranks") -> None:
    """A logarithmic axis with a tick at each number of ranks, or at about ten of many."""
    ranks = sorted(set(rows[x]))
    log_axis(axes.xaxis)
    ticks = ranks[:: max(1, len(ranks) // 8)]
    axes.set_xticks(ticks, [f"{count:g}" for count in ticks])
    axes.set(xlim=(ranks[0] / 1.3, ranks[-1] * 1.3), xlabel=label)
