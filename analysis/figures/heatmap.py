"""Heat maps of ranks by windows: which ranks are slow without communication (compute) and with it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

from dlscale.analysis.families import Family, on_most_ranks
from dlscale.analysis.figures.drawing import DOUBLE_COLUMN_INCHES, RIM, SINGLE_COLUMN_INCHES
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.findings.rank_times import RankTimes, to_heat_rows
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.findings.small_print import origin, parity, warning
from dlscale.analysis.findings.stragglers import Stragglers, straggler_sentences
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.launches import Block
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.text import backend_name

MAX_PANELS = 4
COLORS = "PuOr_r"  # ColorBrewer: orange is slower, purple faster; safe for colour-blind readers
LIMITS = (2, 5, 10, 20, 50, 100)  # percent at the ends of the colours
MARKS: dict[str, dict[str, Any]] = {
    "late": {"marker": "<", "color": "#000000"},
    "slow link": {"marker": "D", "color": "#0072B2"},
}
_MAX_NAMES = 16  # host names on an axis
_MAX_SENTENCES = 6  # about stragglers


def draw(
    family: Family,
    rows: Sequence[ScalingRow],
    provenance: Provenance,
    heats: Sequence[RankTimes],
    known: Sequence[Stragglers],
    form: Form = SCREEN,
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure and the rows behind it, for the largest number of ranks measured; None without any.

    `none` is the first panel; at most three backends follow.
    """
    own = [heat for heat in heats if heat.family == family and form.draws(heat.cell)]
    shown = on_most_ranks(own)[:MAX_PANELS]
    if not shown:
        return None
    num_ranks = shown[0].cell.num_ranks
    lateness = [
        stragglers for stragglers in known if (stragglers.family, stragglers.num_ranks) == (family, num_ranks)
    ]
    figure, axes = figure_with_axes(
        form=form,
        width=SINGLE_COLUMN_INCHES if len(shown) == 1 else DOUBLE_COLUMN_INCHES,
        num_panels=len(shown),
        title=family.title,
        warning=warning(rows) if rows else "",
        subtitle=f"{num_ranks} ranks; {family.constants}",
        handles=_handles(lateness),
        small_print=_small_print(rows, shown, lateness, provenance),
    )
    limit = _limit(shown)
    blocks = sorted({block for heat in shown for block in heat.blocks})
    for panel, heat in zip(axes, shown, strict=True):
        image = _draw_one(panel, heat, lateness, blocks, limit=limit)
    _launch_axis(axes, blocks)
    _rank_axis(axes[0], shown[0])
    bar = figure.colorbar(image, ax=axes, fraction=0.035, pad=0.02, extend="both")
    bar.set_label("slower than the median rank [%]", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    return figure, [row for heat in shown for row in to_heat_rows(heat)]


def _draw_one(
    axes: Axes, heat: RankTimes, known: Sequence[Stragglers], blocks: Sequence[Block], *, limit: float
) -> AxesImage:
    """Draw a panel. All launches are equally wide, whatever their number of windows, so that blocks line up."""
    num_ranks, num_columns = heat.values.shape
    ends = (*heat.first_columns[1:], num_columns)
    for block, first, end in zip(heat.blocks, heat.first_columns, ends, strict=True):
        place = blocks.index(block)
        image = axes.imshow(
            100 * heat.values[:, first:end],
            aspect="auto",
            cmap=COLORS,
            vmin=-limit,
            vmax=limit,
            interpolation="nearest",
            extent=(place, place + 1, num_ranks - 0.5, -0.5),
        )
    for place in range(1, len(blocks)):
        axes.axvline(place, color=RIM, linewidth=0.4)
    first_ranks = _first_ranks(heat)
    for rank in first_ranks[1:]:
        axes.axhline(rank - 0.5, color=RIM, linewidth=0.7 if len(first_ranks) <= _MAX_NAMES else 0.2)
    who = "ranks wait" if heat.waiting else "nobody waits"
    kind = "" if heat.evidence == "measured" else f" ({heat.evidence})"
    axes.set_title(f"{backend_name(heat.cell)}{kind}: {who}", loc="left", fontsize=7.5)
    for rank, verdict in _marked(heat, known):
        axes.plot(
            [1.015],
            [rank],
            transform=axes.get_yaxis_transform(),
            clip_on=False,
            markersize=4 if num_ranks <= 32 else 2.5,
            markeredgewidth=0,
            **MARKS[verdict],
        )
    return image


def _launch_axis(axes: Sequence[Axes], blocks: Sequence[Block]) -> None:
    """Label launches with their block number; at most eight labels."""
    step = -(-len(blocks) // 8)
    axes[0].set_xlim(0, len(blocks))
    axes[0].xaxis.set_major_locator(FixedLocator([place + 0.5 for place in range(0, len(blocks), step)]))
    axes[0].xaxis.set_major_formatter(FixedFormatter([str(block) for _, block in blocks[::step]]))
    for panel in axes:
        panel.set_xlabel("windows, by launch")
        panel.tick_params(length=0)
        panel.grid(visible=False)


def _marked(heat: RankTimes, known: Sequence[Stragglers]) -> list[tuple[int, str]]:
    """Ranks with a verdict from this panel's backend, each with that verdict."""
    if heat.moved:
        return []
    marked: list[tuple[int, str]] = []
    for suspect in (
        suspect
        for stragglers in known
        if stragglers.evidence == heat.evidence
        for suspect in stragglers.suspects
    ):
        if suspect.verdict in MARKS and suspect.backend == backend_name(heat.cell):
            ranks = [suspect.rank] if suspect.rank is not None else range(len(heat.values))
            marked += [(rank, suspect.verdict) for rank in ranks if heat.hosts[rank] in suspect.hosts]
    return marked


def _first_ranks(heat: RankTimes) -> list[int]:
    """The first rank of each host."""
    if heat.moved or not heat.hosts:
        return [0]
    sizes = [len(list(group)) for _, group in groupby(heat.hosts)]
    return [0, *(int(end) for end in np.cumsum(sizes)[:-1])]


def _rank_axis(axes: Axes, heat: RankTimes) -> None:
    """Label the axis with host names if there are several and not too many, else with rank numbers."""
    first = _first_ranks(heat)
    if 1 < len(first) <= _MAX_NAMES:
        ends = (*first[1:], len(heat.values))
        axes.yaxis.set_major_locator(
            FixedLocator([(a + b - 1) / 2 for a, b in zip(first, ends, strict=True)])
        )
        axes.set_yticklabels([_short(heat.hosts[rank]) for rank in first])
        axes.set_ylabel(f"{len(heat.values)} ranks, by host")
    else:
        axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_ylabel("rank" if len(first) == 1 else f"rank, on {len(first)} hosts")


def _short(name: str) -> str:
    return name if len(name) <= 12 else f"{name[:5]}…{name[-6:]}"


def _limit(shown: Sequence[RankTimes]) -> float:
    """Limit of the colour scale in percent: beyond 99 % of the values, so that outliers do not stretch it."""
    values = np.concatenate([np.abs(100 * heat.values).ravel() for heat in shown])
    needed = float(np.quantile(values, 0.99))
    return next((limit for limit in LIMITS if limit >= needed), LIMITS[-1])


def _handles(known: Sequence[Stragglers]) -> list[Line2D]:
    verdicts = {suspect.verdict for stragglers in known for suspect in stragglers.suspects}
    handles = [
        Line2D([], [], linestyle="", markersize=4, markeredgewidth=0, label=verdict, **style)
        for verdict, style in MARKS.items()
        if verdict in verdicts
    ]
    return [*handles, Line2D([], [], color=RIM, linewidth=0.7, label="between hosts and between launches")]


def _small_print(
    rows: Sequence[ScalingRow],
    shown: Sequence[RankTimes],
    known: Sequence[Stragglers],
    provenance: Provenance,
) -> list[str]:
    text = [
        "Each rank's seconds in a window over the median over ranks. In none no rank waits for another, so who is slow "
        "there is late by itself; over a backend that waits for all, times are alike whoever was late."
    ]
    if any(heat.num_windows > heat.values.shape[1] for heat in shown):
        text.append("Neighbouring windows of a launch are put together, as their median.")
    if any(heat.moved for heat in shown):
        text.append("Launches ran on different hosts: a row is a rank, wherever it was.")
    sentences = [
        sentence[0].upper() + sentence[1:]
        for stragglers in known
        for sentence in straggler_sentences(stragglers)
    ]
    if len(sentences) > _MAX_SENTENCES:
        sentences = [*sentences[:_MAX_SENTENCES], f"And {len(sentences) - _MAX_SENTENCES} more (see --json)."]
    cells = {heat.cell.id for heat in shown}
    return [
        " ".join(text + sentences),
        *(parity(rows) if rows else []),
        origin([row for row in rows if row.cell.id in cells], provenance),
    ]
