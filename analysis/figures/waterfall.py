"""Waterfalls from ideal to measured speed: bars with the loss of each part, one panel per backend."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from dlscale.analysis.families import Family
from dlscale.analysis.figures.drawing import DOUBLE_COLUMN_INCHES, GREY, RIM, SINGLE_COLUMN_INCHES
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.findings.small_print import origin, parity, span, warning
from dlscale.analysis.findings.waterfall import Waterfall
from dlscale.analysis.findings.waterfall_table import waterfall_rows
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import backend_name, number, share_text

MAX_PANELS = 3
LARGEST_NAMES = {False: "largest loss", True: "largest loss, or not separable from it"}


def draw(
    family: Family,
    rows: Sequence[ScalingRow],
    provenance: Provenance,
    falls: Sequence[Waterfall],
    form: Form = SCREEN,
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure and the rows behind it, for each backend's largest number of ranks; None if none has parts.

    At most the three backends with the highest efficiency are shown; the small print names the others.
    """
    largest = _largest([fall for fall in falls if fall.family == family and form.draws(fall.cell)])
    shown = sorted(sorted(largest, key=_lost)[:MAX_PANELS], key=largest.index)
    if not shown:
        return None
    figure, axes = figure_with_axes(
        form=form,
        width=SINGLE_COLUMN_INCHES if len(shown) == 1 else DOUBLE_COLUMN_INCHES,
        num_panels=len(shown),
        title=family.title,
        warning=warning(rows) if rows else "",
        subtitle=family.constants,
        handles=_handles(shown),
        small_print=_small_print(rows, shown, largest, provenance),
    )
    names = [*dict.fromkeys(part.name for fall in shown for part in fall.parts), TOGETHER]
    for panel, fall in zip(axes, shown, strict=True):
        draw_bars(panel, fall, names)
    beside = len({panel.get_position().x0 for panel in axes})
    scale_axes(axes, shown, names, width=float(figure.get_figwidth()), beside=beside)
    return figure, waterfall_rows(shown)


def _largest(falls: Sequence[Waterfall]) -> list[Waterfall]:
    """The waterfall with parts on the most ranks, for each backend and kind of evidence."""
    groups = groupby(
        [fall for fall in falls if fall.parts], key=lambda fall: (backend_name(fall.cell), fall.evidence)
    )
    return [max(group, key=lambda fall: fall.cell.num_ranks) for _, group in groups]


def _lost(fall: Waterfall) -> float:
    return fall.loss.center if fall.loss else 1.0


def _handles(shown: Sequence[Waterfall]) -> list[Line2D]:
    parts = [(fall, part) for fall in shown for part in fall.parts]
    kinds = [
        (LARGEST, LARGEST_NAMES[any(fall.rivals for fall in shown)], True),
        (LOSS, "loss", True),
        (GAIN, "gain", any(part.loss.center < 0 for _, part in parts)),
    ]
    handles = [
        Line2D([], [], color=color, linewidth=5, solid_capstyle="butt", label=label)
        for color, label, there in kinds
        if there
    ]
    if any(part.loss.low is not None for _, part in parts):
        handles.append(
            Line2D(
                [],
                [],
                color=RIM,
                linewidth=0.9,
                marker="|",
                markersize=4,
                label=f"{100 * LEVEL:.0f} % interval",
            )
        )
    return handles


def _small_print(
    rows: Sequence[ScalingRow],
    shown: Sequence[Waterfall],
    largest: Sequence[Waterfall],
    provenance: Provenance,
) -> list[str]:
    counts = [part.loss.n for fall in shown for part in fall.parts]
    text = [
        "Ideal: 1 rank without a communication layer. Parts of the measured step, which add up to what is lost, over "
        f"n = {span(counts)} blocks of launches, with t intervals of paired logarithms. Batch effect: the local batch "
        "is smaller; co-running: ranks share the machine; input stall: longer waiting for samples than on 1 rank; late "
        "ranks: every step waits for its latest; exposed communication: the rest."
    ]
    if any(part.loss.low is None for fall in shown for part in fall.parts):
        text.append("No whisker: too few blocks.")
    text += dict.fromkeys(f"{note[0].upper()}{note[1:]}." for fall in shown for note in fall.notes)
    if left_out := [backend_name(fall.cell) for fall in largest if fall not in shown]:
        text.append(f"Not shown: {', '.join(left_out)} (see --json).")
    cells = {fall.cell.id for fall in shown}
    return [
        " ".join(text),
        *(parity(rows) if rows else []),
        origin([row for row in rows if row.cell.id in cells], provenance),
    ]


TOGETHER = "together"
# Okabe & Ito's colours; in grey they differ in lightness, and gains and losses in direction.
LOSS, LARGEST, GAIN = "#F0B56B", "#D55E00", "#56B4E9"
_LABEL_INCHES = 1.0  # for a bar's numbers, to its right
_NAMES_INCHES = 1.2  # for the parts' names, to the left of the first panel
_NAME_CHARACTERS = 18
_TITLE_CHARACTERS = 18
_HEIGHT = 0.62  # bar height; 1 is the distance between two bars


def draw_bars(axes: Axes, fall: Waterfall, names: Sequence[str]) -> None:
    """Draw bars from top to bottom, each beginning where the one above it ends."""
    kept = share_text(fall.efficiency)
    kind = "" if fall.evidence == "measured" else f", {fall.evidence}"
    name = textwrap.shorten(backend_name(fall.cell), _TITLE_CHARACTERS, placeholder="…")
    title = f"{name}, {fall.cell.num_ranks} ranks{kind}\nefficiency {kept}"
    axes.set_title(title, loc="left", fontsize=7.5)
    axes.axvline(0.0, color=RIM, linewidth=0.7, zorder=1)
    begin, above = 0.0, None
    for part in fall.parts:
        place = names.index(part.name)
        largest = part is fall.largest or part.name in fall.rivals
        color = GAIN if part.loss.center < 0 else LARGEST if largest else LOSS
        end = begin + part.loss.center
        if above is not None:
            axes.plot([begin, begin], [above, place], color=GREY, linewidth=0.6, zorder=1.5)
        _bar(axes, place, begin, part.loss, color=color, hollow=fall.evidence != "measured")
        _label(axes, place, max(begin, end), begin, part.loss, part.seconds)
        begin, above = end, place
    if fall.loss and fall.measured_seconds:
        place = names.index(TOGETHER)
        axes.plot([begin, begin], [above or 0, place], color=GREY, linewidth=0.6, zorder=1.5)
        _bar(axes, place, 0.0, fall.loss, color=GREY, hollow=fall.evidence != "measured")
        seconds = fall.loss.times(fall.measured_seconds)
        _label(axes, place, max(0.0, fall.loss.center), 0.0, fall.loss, seconds)


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


def _label(axes: Axes, place: int, right: float, begin: float, loss: Interval, seconds: Interval) -> None:
    """Write percent with the interval, and below it milliseconds per step, to the right of bar and whisker."""
    milliseconds = number(round(1000 * seconds.center, 3) + 0.0)
    end = max(right, begin + (loss.center if loss.high is None else loss.high))
    axes.annotate(
        f"{share_text(loss)}\n{milliseconds} ms",
        (end, place),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=6,
        linespacing=1.15,
        zorder=4,
    )


def scale_axes(
    axes: Sequence[Axes], shown: Sequence[Waterfall], names: Sequence[str], *, width: float, beside: int
) -> None:
    """Set one scale for all panels, `beside` of them next to each other in `width` inches, with room for numbers."""
    low, high = min(map(_leftmost, shown)), max(map(_rightmost, shown))
    room = (width - _NAMES_INCHES) / beside - 0.1
    reach = max(high - low, 0.001)
    axes[0].set_xlim(low - 0.03 * reach, high + reach * _LABEL_INCHES / max(0.4, room - _LABEL_INCHES))
    axes[0].set_ylim(len(names) - 0.45, -0.55)
    axes[0].yaxis.set_major_locator(FixedLocator(range(len(names))))
    axes[0].set_yticklabels([textwrap.fill(name, _NAME_CHARACTERS, break_on_hyphens=False) for name in names])
    # No ticks below the numbers on the right, where no bar is drawn.
    marks = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    for panel in axes:
        panel.xaxis.set_major_locator(
            FixedLocator([mark for mark in marks if low <= mark <= high + 0.05 * reach])
        )
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}"))
        panel.set_xlabel("of the ideal speed lost [%]")
        panel.spines["left"].set_visible(False)
        panel.grid(visible=False, axis="y")
        panel.tick_params(axis="y", length=0)


def _leftmost(fall: Waterfall) -> float:
    return min(0.0, *(low for low, _ in _ends(fall)))


def _rightmost(fall: Waterfall) -> float:
    return max(0.0, *(high for _, high in _ends(fall)))


def _ends(fall: Waterfall) -> list[tuple[float, float]]:
    """The leftmost and rightmost point of each bar with its whisker."""
    begin, ends = 0.0, []
    for loss in [*(part.loss for part in fall.parts), *([fall.loss] if fall.loss else [])]:
        start = 0.0 if loss is fall.loss else begin
        points = [start, start + loss.center]
        points += [start + value for value in (loss.low, loss.high) if value is not None]
        ends.append((min(points), max(points)))
        begin += loss.center
    return ends
