"""From ideal to measured: what each part takes of the ideal speed, one panel per backend."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dlscale.analysis.family import Family
from dlscale.analysis.figures.page import origin, page, parity, span, warning
from dlscale.analysis.figures.style import DOUBLE_COLUMN_INCHES, RIM, SINGLE_COLUMN_INCHES
from dlscale.analysis.figures.waterfall_bars import GAIN, LARGEST, LOSS, TOGETHER, draw_bars, scale_axes
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.scaling import Row
from dlscale.analysis.statistics import LEVEL
from dlscale.analysis.waterfall.rows import to_rows
from dlscale.analysis.waterfall.waterfall import Waterfall
from dlscale.analysis.words import backend_name

MAX_PANELS = 3
LARGEST_NAMES = {False: "largest loss", True: "largest loss, or not told from it"}


def draw(
    family: Family, rows: Sequence[Row], provenance: Provenance, found: Sequence[Waterfall]
) -> tuple[Figure, list[dict[str, Any]]] | None:
    """The figure and the rows behind it, of the backends' largest numbers of ranks; None if none has parts.

    Of more than three backends the three that keep most are shown, and the small print names the others.
    """
    largest = _largest([one for one in found if one.family == family])
    shown = sorted(sorted(largest, key=_lost)[:MAX_PANELS], key=largest.index)
    if not shown:
        return None
    figure, axes = page(
        width=SINGLE_COLUMN_INCHES if len(shown) == 1 else DOUBLE_COLUMN_INCHES,
        num_panels=len(shown),
        title=family.title,
        warning=warning(rows) if rows else "",
        subtitle=family.constants,
        handles=_handles(shown),
        small_print=_small_print(rows, shown, largest, provenance),
    )
    names = [*dict.fromkeys(part.name for one in shown for part in one.parts), TOGETHER]
    for panel, one in zip(axes, shown, strict=True):
        draw_bars(panel, one, names)
    scale_axes(axes, shown, names, width=float(figure.get_figwidth()))
    return figure, to_rows(shown)


def _largest(found: Sequence[Waterfall]) -> list[Waterfall]:
    """Of each backend and kind of evidence the waterfall of the most ranks that has parts."""
    groups = groupby(
        [one for one in found if one.parts], key=lambda one: (backend_name(one.cell), one.evidence)
    )
    return [max(group, key=lambda one: one.cell.num_ranks) for _, group in groups]


def _lost(one: Waterfall) -> float:
    return one.loss.center if one.loss else 1.0


def _handles(shown: Sequence[Waterfall]) -> list[Line2D]:
    parts = [(one, part) for one in shown for part in one.parts]
    kinds = [
        (LARGEST, LARGEST_NAMES[any(one.rivals for one in shown)], True),
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
    rows: Sequence[Row], shown: Sequence[Waterfall], largest: Sequence[Waterfall], provenance: Provenance
) -> list[str]:
    counts = [part.loss.n for one in shown for part in one.parts]
    text = [
        "Ideal: 1 rank without a communication layer. Parts of the measured step, which add up to what is lost, over "
        f"n = {span(counts)} blocks of launches, with t intervals of paired logarithms. Batch effect: the local batch "
        "is smaller; co-running: ranks share the machine; input stall: longer waiting for samples than on 1 rank; late "
        "ranks: every step waits for its latest; exposed communication: the rest."
    ]
    if any(part.loss.low is None for one in shown for part in one.parts):
        text.append("No whisker: too few blocks.")
    text += dict.fromkeys(f"{note[0].upper()}{note[1:]}." for one in shown for note in one.notes)
    if left_out := [backend_name(one.cell) for one in largest if one not in shown]:
        text.append(f"Not shown: {', '.join(left_out)} (see --json).")
    cells = {one.cell.id for one in shown}
    return [
        " ".join(text),
        *(parity(rows) if rows else []),
        origin([row for row in rows if row.cell.id in cells], provenance),
    ]
