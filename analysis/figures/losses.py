"""Waterfalls from ideal to measured speed: bars with the loss of each part, one panel per backend."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from dlscale.analysis.figures.drawing import GREY, LINE_INCHES, RIM
from dlscale.analysis.figures.layout import Needs
from dlscale.analysis.plots import IN_TOTAL, Loss
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import number, share_text

# Okabe & Ito's colours; in grey they differ in lightness, and gains and losses in direction.
LOSS, LARGEST, GAIN = "#F0B56B", "#D55E00", "#56B4E9"
# For a bar's numbers, to its right; in a narrow figure the whisker alone shows the interval.
_LABEL_INCHES, _PRINTED_LABEL_INCHES, _NARROW_LABEL_INCHES = 1.0, 1.35, 0.55
_LEAST_BAR_INCHES = 0.4
_NAMES_INCHES = 1.1  # for the parts' names, to the left of the first panel
_AROUND_BARS_INCHES = 0.6  # a panel's title
_NAME_CHARACTERS = 16
_TITLE_CHARACTERS = 18
_HEIGHT = 0.62  # bar height; 1 is the distance between two bars


def needs_of_losses(losses: Sequence[Loss]) -> Needs:
    """A printed panel has a title of two lines, a bar for each part, as far apart as their names need, and an axis."""
    names = _names(losses)
    lines = [_wrapped(name).count("\n") + 1 for name in names]
    apart = max(1.5, *((upper + lower) / 2 for upper, lower in pairwise(lines)))
    return Needs(width=2.3, height=apart * LINE_INCHES * len(names) + _AROUND_BARS_INCHES, fixed=True)


def _wrapped(name: str) -> str:
    return textwrap.fill(name, _NAME_CHARACTERS, break_on_hyphens=False)


def _names(losses: Sequence[Loss]) -> list[str]:
    return [*dict.fromkeys(part.label for loss in losses for part in loss.parts), IN_TOTAL]


def draw_losses(axes: Sequence[Axes], losses: Sequence[Loss], *, width: float, printed: bool) -> None:
    """Draw each loss in a panel of a figure `width` inches wide, all in one scale."""
    names, beside = _names(losses), len({panel.get_position().x0 for panel in axes})
    numbers = _PRINTED_LABEL_INCHES if printed else _LABEL_INCHES
    room = (width - _NAMES_INCHES) / beside - 0.1
    narrow = printed and room < numbers + _LEAST_BAR_INCHES
    if narrow:
        numbers = _NARROW_LABEL_INCHES
    for panel, loss in zip(axes, losses, strict=True):
        _draw_bars(panel, loss, names, narrow=narrow, printed=printed)
    stretch = numbers / max(_LEAST_BAR_INCHES, room - numbers)
    _scale_axes(axes, losses, names, stretch=stretch, narrow=narrow)


def loss_handles(losses: Sequence[Loss]) -> list[Line2D]:
    """Legend entries for the kinds of bars and their whiskers; none without a loss."""
    parts = [part for loss in losses for part in loss.parts]
    several = any(len(loss.largest) > 1 for loss in losses)
    kinds = [
        (LARGEST, "largest loss, or not separable from it" if several else "largest loss", bool(losses)),
        (LOSS, "loss", bool(losses)),
        (GAIN, "gain", any(part.share.center < 0 for part in parts)),
    ]
    handles = [
        Line2D([], [], color=color, linewidth=5, solid_capstyle="butt", label=label)
        for color, label, there in kinds
        if there
    ]
    if any(part.share.low is not None for part in parts):
        label = f"{100 * LEVEL:.0f} % interval"
        handles.append(Line2D([], [], color=RIM, linewidth=0.9, marker="|", markersize=4, label=label))
    return handles


def _draw_bars(axes: Axes, loss: Loss, names: Sequence[str], *, narrow: bool, printed: bool) -> None:
    """Draw bars from top to bottom, each beginning where the one above it ends; in print without milliseconds."""
    kind = "" if loss.evidence == "measured" else f", {loss.evidence}"
    name = textwrap.shorten(loss.name, _TITLE_CHARACTERS, placeholder="…")
    title = f"{name}, {loss.num_ranks} ranks{kind}\nefficiency {_share(loss.kept, narrow=narrow)}"
    axes.set_title(title, loc="left", fontsize=7.5)
    axes.axvline(0.0, color=RIM, linewidth=0.7, zorder=1)
    begin, above, hollow = 0.0, None, loss.evidence != "measured"
    for part in loss.parts:
        place = names.index(part.label)
        color = GAIN if part.share.center < 0 else LARGEST if part.label in loss.largest else LOSS
        if above is not None:
            axes.plot([begin, begin], [above, place], color=GREY, linewidth=0.6, zorder=1.5)
        _bar(axes, place, begin, part.share, color=color, hollow=hollow)
        known = part.milliseconds.center if part.milliseconds and not printed else None
        _label(axes, place, begin, part.share, known, narrow=narrow)
        begin, above = begin + part.share.center, place
    place, whole = names.index(IN_TOTAL), loss.kept.complement()
    axes.plot([begin, begin], [above or 0, place], color=GREY, linewidth=0.6, zorder=1.5)
    _bar(axes, place, 0.0, whole, color=GREY, hollow=hollow)
    milliseconds = [part.milliseconds.center for part in loss.parts if part.milliseconds and not printed]
    _label(axes, place, 0.0, whole, sum(milliseconds) if milliseconds else None, narrow=narrow)


def _bar(axes: Axes, place: int, begin: float, loss: Interval, *, color: str, hollow: bool) -> None:
    axes.barh(
        place,
        loss.center,
        _HEIGHT,
        left=begin,
        facecolor="white" if hollow else color,
        edgecolor=color if hollow else RIM,
        hatch="//////" if hollow else None,
        linewidth=0.5,
        zorder=2,
    )
    if loss.low is not None and loss.high is not None:
        end = begin + loss.center
        axes.errorbar(
            end,
            place,
            xerr=[[loss.center - loss.low], [loss.high - loss.center]],
            ecolor=RIM,
            elinewidth=0.9,
            capsize=2.2,
            linestyle="",
            zorder=3,
        )


def _share(share: Interval, *, narrow: bool) -> str:
    return share_text(replace(share, low=None, high=None) if narrow else share)


def _label(
    axes: Axes, place: int, begin: float, share: Interval, milliseconds: float | None, *, narrow: bool
) -> None:
    """Write percent with the interval, and below it milliseconds per step, to the right of bar and whisker."""
    below = "" if milliseconds is None else f"\n{number(round(milliseconds, 3) + 0.0)} ms"
    end = max(begin, begin + share.center, begin + (share.center if share.high is None else share.high))
    axes.annotate(
        f"{_share(share, narrow=narrow)}{below}",
        (end, place),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=6,
        linespacing=1.15,
        zorder=4,
    )


def _scale_axes(
    axes: Sequence[Axes], shown: Sequence[Loss], names: Sequence[str], *, stretch: float, narrow: bool
) -> None:
    """Set one scale for all panels; numbers need a room of `stretch` times that of the bars."""
    ends = [end for loss in shown for end in _reach(loss)]
    low, high = min(ends), max(ends)
    reach = max(high - low, 0.001)
    axes[0].set_xlim(low - 0.03 * reach, high + reach * stretch)
    axes[0].set_ylim(len(names) - 0.45, -0.55)
    axes[0].yaxis.set_major_locator(FixedLocator(range(len(names))))
    axes[0].set_yticklabels([_wrapped(name) for name in names])
    # No ticks below the numbers on the right, where no bar is drawn.
    separator = "\n" if narrow else " "
    marks = MaxNLocator(2 if narrow else 4, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    for panel in axes:
        panel.xaxis.set_major_locator(
            FixedLocator([mark for mark in marks if low <= mark <= high + 0.05 * reach])
        )
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}"))
        panel.set_xlabel(f"of the ideal{separator}speed lost [%]")
        panel.spines["left"].set_visible(False)
        panel.grid(visible=False, axis="y")
        panel.tick_params(axis="y", length=0)


def _reach(loss: Loss) -> list[float]:
    """Where the bars and whiskers of a loss end, and the axis of ideal speed."""
    shares = [*(part.share for part in loss.parts), loss.kept.complement()]
    begins = [*np.cumsum([0.0, *(part.share.center for part in loss.parts)])[:-1], 0.0]
    return [
        0.0,
        *(
            float(begin + end)
            for begin, share in zip(begins, shares, strict=True)
            for end in (0.0, share.center, share.low, share.high)
            if end is not None
        ),
    ]
