"""A ladder as bars from top to bottom: what each step adds to the throughput of the steps before it.

A bar begins where the one above it ends, and the last one is all steps together.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from dlscale.analysis.figures.drawing import DOUBLE_COLUMN_INCHES, GREY, RIM
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.findings.ladder import ORDER_MATTERS, Ladder, ladder_row, ladder_title
from dlscale.analysis.findings.small_print import span
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import rate, share_text

TOGETHER = "all steps"
# Okabe & Ito's colours, as in the waterfall; grey is what cannot be told from nothing.
COLORS = {"faster": "#56B4E9", "slower": "#D55E00"}
_NAMES = {"faster": "gain", "slower": "loss", "": "not shown to be either"}
_UNKNOWN = "#cfcfcf"
_HEIGHT = 0.62  # bar height; 1 is the distance between two bars
_NAME_CHARACTERS = 34
_ROOM = 0.45  # for the numbers right of the bars, as a share of their reach


@dataclass(frozen=True, slots=True)
class _Bar:
    name: str
    begin: float  # throughput over the first step's, - 1
    change: Interval | None  # in the same unit; None where a step gave no number
    verdict: str
    text: str


def draw(
    ladder: Ladder, provenance: Provenance, form: Form = SCREEN
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure of a ladder and the rows behind it; None if no step has a gain."""
    bars = _bars(ladder)
    known = [bar for bar in bars if bar.change]
    if not known or (form.backends and ladder.cell.backend not in form.backends):
        return None
    figure, (axes,) = figure_with_axes(
        form=form,
        width=DOUBLE_COLUMN_INCHES,
        num_panels=1,
        title=ladder_title(ladder),
        warning="",
        subtitle=f"{ladder.steps[0].family.constants}; step 0: {ladder.steps[0].adds}, "
        f"{rate(ladder.steps[0].throughput)} samples/s",
        handles=_handles(known),
        small_print=_small_print(ladder, provenance),
    )
    _draw(axes, bars)
    _scale(axes, bars)
    return figure, [ladder_row(ladder, step) for step in ladder.steps]


def _bars(ladder: Ladder) -> list[_Bar]:
    """A bar for each step after the first, and one for all of them. Heights add up: gains multiply."""
    bars, level = [], 0.0
    for step in ladder.steps[1:]:
        gain = step.gain
        change = None if gain is None else gain.times(1 + level)
        text = "no number" if gain is None else f"{share_text(gain, sign='+')}"
        verdict = step.verdict if step.verdict in COLORS else ""
        bars.append(_Bar(f"{step.index}: + {step.adds}", level, change, verdict, text))
        level += change.center if change else 0.0
    total = ladder.steps[-1].total
    if total is not None:
        bars.append(_Bar(TOGETHER, 0.0, total, TOGETHER, f"{share_text(total, sign='+')}"))
    return bars


def _draw(axes: Axes, bars: Sequence[_Bar]) -> None:
    axes.axvline(0.0, color=RIM, linewidth=0.7, zorder=1)
    for place, bar in enumerate(bars):
        if bar.change is None:
            continue
        color = GREY if bar.verdict == TOGETHER else COLORS.get(bar.verdict, _UNKNOWN)
        axes.barh(
            place,
            bar.change.center,
            _HEIGHT,
            left=bar.begin,
            facecolor=color,
            edgecolor=RIM,
            linewidth=0.5,
            zorder=2,
        )
        end = bar.begin + bar.change.center
        if place + 1 < len(bars):
            axes.plot([end, end], [place, place + 1], color=GREY, linewidth=0.6, zorder=1.5)
        if bar.change.low is not None and bar.change.high is not None:
            axes.errorbar(
                end,
                place,
                xerr=[[bar.change.center - bar.change.low], [bar.change.high - bar.change.center]],
                ecolor=RIM,
                elinewidth=0.9,
                capsize=2.2,
                linestyle="",
                zorder=3,
            )
        axes.annotate(
            bar.text,
            (max(_ends(bar)), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
            zorder=4,
        )


def _ends(bar: _Bar) -> list[float]:
    """The points that a bar and its whisker reach."""
    if bar.change is None:
        return [bar.begin]
    shares = [0.0, bar.change.center, bar.change.low or 0.0, bar.change.high or 0.0]
    return [bar.begin + share for share in shares]


def _scale(axes: Axes, bars: Sequence[_Bar]) -> None:
    ends = [0.0, *(end for bar in bars for end in _ends(bar))]
    low, high = min(ends), max(ends)
    reach = max(high - low, 0.01)
    axes.set_xlim(low - 0.03 * reach, high + _ROOM * reach)
    axes.set_ylim(len(bars) - 0.45, -0.55)
    axes.yaxis.set_major_locator(FixedLocator(range(len(bars))))
    axes.set_yticklabels([textwrap.fill(bar.name, _NAME_CHARACTERS, break_on_hyphens=False) for bar in bars])
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:+g}" if value else "0"))
    axes.set_xlabel("throughput relative to step 0 [%]")
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _handles(bars: Sequence[_Bar]) -> list[Line2D]:
    kinds = [kind for kind in _NAMES if any(bar.verdict == kind for bar in bars)]
    handles = [
        Line2D(
            [],
            [],
            color=COLORS.get(kind, _UNKNOWN),
            linewidth=5,
            solid_capstyle="butt",
            label=_NAMES[kind],
        )
        for kind in kinds
    ]
    return [*handles, Line2D([], [], color=GREY, linewidth=5, solid_capstyle="butt", label=TOGETHER)]


def _small_print(ladder: Ladder, provenance: Provenance) -> list[str]:
    counts = [step.gain.n for step in ladder.steps if step.gain] or [0]
    commits = ", ".join(commit[:12] for commit in provenance.commits)
    text = (
        f"Each number is a step's gain over the step before, over n = {span(counts)} blocks of launches, with the "
        f"{100 * LEVEL:.0f} % t interval of paired log ratios; a bar is that gain at the height the steps before it "
        "have reached. Gain or loss: claimed after Holm's correction over all steps. Order: "
        f"{ladder.order}. {ORDER_MATTERS}"
    )
    where = f"Study {', '.join(provenance.studies)}; commit {commits}; data {provenance.data_hash[:12]}."
    return [text, where]
