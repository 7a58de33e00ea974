"""Bus bandwidth of each backend at the network's own bucket sizes, with the bytes sent in each size behind it.

The size axis is in powers of 2; bandwidth is in GB/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log2, nan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dlscale.analysis.curves import Curve, limits
from dlscale.analysis.families import Family
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    GREY,
    RIM,
    SINGLE_COLUMN_INCHES,
    evidence_handles,
    evidence_text,
    line_style,
    looks_of,
    marker_style,
)
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.findings.communication import GIGA, MEGA, Communication, communication_rows
from dlscale.analysis.findings.communication_only import BucketSize
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.findings.small_print import origin, parity, span, warning
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.render.theme import Look
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import backend_name, number, size_text

MAX_PANELS = 3
_BAR = 0.022  # of the axis, for each backend
Panel = tuple[int, int]  # ranks, nodes


def draw(
    family: Family,
    rows: Sequence[ScalingRow],
    provenance: Provenance,
    communications: Sequence[Communication],
    form: Form = SCREEN,
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure and the rows behind it, a panel per number of ranks; None if no bucket size is known.

    At most the three largest numbers of ranks are shown; the small print names the others.
    """
    own = [
        communication
        for communication in communications
        if communication.family == family and form.draws(communication.cell)
    ]
    panels = sorted({_panel(communication) for communication in own})
    shown = [communication for communication in own if _panel(communication) in panels[-MAX_PANELS:]]
    if not shown:
        return None
    several = len(panels) > 1
    curves = [_curve(communication) for communication in shown]
    figure, axes = figure_with_axes(
        form=form,
        width=DOUBLE_COLUMN_INCHES if several else SINGLE_COLUMN_INCHES,
        num_panels=min(len(panels), MAX_PANELS),
        title=family.title,
        warning=warning(rows) if rows else "",
        subtitle="; ".join([*([] if several else [_named(panels[0])]), family.constants]),
        handles=_handles(curves, form),
        small_print=_small_print(rows, shown, panels[:-MAX_PANELS], provenance, evidence_text(curves, form)),
    )
    looks = looks_of(curves)
    low, high = octaves(shown)
    for axis, panel in zip(axes, panels[-MAX_PANELS:], strict=True):
        members = [communication for communication in shown if _panel(communication) == panel]
        _draw_panel(
            axis, members, looks, width=_BAR * (high - low), last=axis is axes[-1], among=shown, form=form
        )
        if several:
            axis.set_title(_named(panel), loc="left")
    size_axis(axes[0], low, high)
    speed_axis(
        axes[0], [size.busbw.times(GIGA) for communication in shown for size in communication.alone.sizes]
    )
    for axis in axes:
        axis.set_xlabel("size of a bucket")
    return figure, communication_rows(shown)


def _draw_panel(
    axes: Axes,
    members: Sequence[Communication],
    looks: dict[str, Look],
    *,
    width: float,
    last: bool,
    among: Sequence[Communication],
    form: Form,
) -> None:
    """Draw points and bars, each backend's beside each other, points in print not. `width` is in octaves."""
    behind = axes.twinx()
    axes.set_zorder(behind.get_zorder() + 1)
    axes.patch.set_visible(False)
    names = list(looks)
    for communication in members:
        look = looks[backend_name(communication.cell)]
        aside = 2 ** (width * (names.index(backend_name(communication.cell)) - (len(names) - 1) / 2))
        _draw_bars(behind, communication.alone.sizes, look, aside=aside, width=width)
        _draw_points(axes, communication, look, aside=1.0 if form.printed else aside)
    behind.grid(visible=False)
    behind.set_ylim(
        0, 1.8 * MEGA * max(size.step_bytes for communication in among for size in communication.alone.sizes)
    )
    behind.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    behind.tick_params(axis="y", colors=GREY, length=0 if not last else 2, labelright=last)
    if last:
        behind.set_ylabel("bars: per step [MB]", color=GREY)


def _draw_bars(axes: Axes, sizes: Sequence[BucketSize], look: Look, *, aside: float, width: float) -> None:
    half = 2 ** (width / 2)
    places = [size.num_bytes * aside for size in sizes]
    axes.bar(
        [place / half for place in places],
        [size.step_bytes * MEGA for size in sizes],
        width=[place * (half - 1 / half) for place in places],
        align="edge",
        color=look.color,
        alpha=0.28,
        linewidth=0,
    )


def _draw_points(axes: Axes, communication: Communication, look: Look, *, aside: float) -> None:
    speeds = [size.busbw.times(GIGA) for size in communication.alone.sizes]
    axes.errorbar(
        [size.num_bytes * aside for size in communication.alone.sizes],
        [speed.center for speed in speeds],
        yerr=[
            [nan if speed.low is None else speed.center - speed.low for speed in speeds],
            [nan if speed.high is None else speed.high - speed.center for speed in speeds],
        ],
        barsabove=True,
        ecolor=RIM,
        elinewidth=0.7,
        capsize=1.8,
        zorder=3,
        label=backend_name(communication.cell),
        **line_style(look, joined=len(speeds) > 1),
        **marker_style(look, communication.evidence),
    )


def _panel(communication: Communication) -> Panel:
    return communication.cell.num_ranks, communication.cell.num_nodes


def _named(panel: Panel) -> str:
    num_ranks, num_nodes = panel
    return f"{num_ranks} ranks" + (f" on {num_nodes} nodes" if num_nodes > 1 else "")


def _curve(communication: Communication) -> Curve:
    return Curve(
        name=backend_name(communication.cell),
        backend=communication.cell.backend,
        evidence=communication.evidence,
        rows=(),
    )


def _handles(curves: Sequence[Curve], form: Form) -> list[Line2D]:
    return [
        *(
            Line2D([], [], label=name, **line_style(look, joined=True), **marker_style(look, "measured"))
            for name, look in looks_of(curves).items()
        ),
        Line2D([], [], color="#bbbbbb", linewidth=5, solid_capstyle="butt", label="bytes per step"),
        *evidence_handles(curves, form),
    ]


def _small_print(
    rows: Sequence[ScalingRow],
    shown: Sequence[Communication],
    left_out: Sequence[Panel],
    provenance: Provenance,
    evidence: Sequence[str],
) -> list[str]:
    times = [size.seconds for communication in shown for size in communication.alone.sizes]
    levels = sorted({100 * interval.level for interval in times if interval.low is not None})
    bars = ", ".join(f"{level:.1f}" for level in levels)
    text = [
        "busbw: bytes of a bucket over the seconds of its exchange, x 2 (P - 1) / P on P ranks; one bucket after the "
        "other while nobody computes, at the sizes of the training's own buckets. The slowest rank's mean, median over "
        f"n = {span([interval.n for interval in times])} launches;",
        f"whiskers: {bars} % order-statistic interval."
        if levels
        else "no whiskers: an interval needs 6 launches.",
        "Bars: bytes of a step that travel in buckets of that size. Backends stand beside each other.",
    ]
    text += dict.fromkeys(
        f"{note[0].upper()}{note[1:]}." for communication in shown for note in communication.alone.notes
    )
    if left_out:
        text.append(f"Not shown: {', '.join(map(_named, left_out))} (see --json).")
    text += evidence
    cells = {communication.cell.id for communication in shown}
    return [
        " ".join(text),
        *(parity(rows) if rows else []),
        origin([row for row in rows if row.cell.id in cells], provenance),
    ]


_WIDE = 4  # the axis is logarithmic above this ratio of fastest to slowest
_MARGIN = 0.07  # of the axis, on both sides
_LEAST_OCTAVES = 2.0
_MOST_TICKS = 6


def octaves(shown: Sequence[Communication]) -> tuple[float, float]:
    """Base-2 logarithms of the sizes at the ends of the axis."""
    sizes = [log2(size.num_bytes) for communication in shown for size in communication.alone.sizes]
    middle, half = (min(sizes) + max(sizes)) / 2, max(_LEAST_OCTAVES, max(sizes) - min(sizes)) / 2
    return middle - half * (1 + 2 * _MARGIN), middle + half * (1 + 2 * _MARGIN)


def size_axis(axes: Axes, low: float, high: float) -> None:
    """Set a logarithmic axis with ticks at powers of 2, spaced so that the labels stay readable."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(2**low, 2**high)
    first, last = -floor(-low), floor(high)
    apart = max(1, -(-(last - first + 1) // _MOST_TICKS))
    axes.xaxis.set_major_locator(FixedLocator([2.0**power for power in range(first, last + 1, apart)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(round(value)).replace(" ", "\n")))


def speed_axis(axes: Axes, speeds: Sequence[Interval]) -> None:
    """Set an axis from 0, or a logarithmic one if the speeds span a large ratio."""
    low, high = limits(speeds)
    if high / low > _WIDE:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.3, high * 1.3)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, 1.12 * high)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.set_ylabel("busbw [GB/s]")
