"""Draws heat maps of ranks by windows, all in one scale of colours: orange is slower, purple faster."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

from dlscale.analysis.figures.drawing import RIM, inches_wide
from dlscale.analysis.figures.layout import Needs
from dlscale.analysis.plots import HeatMap

COLORS = "PuOr_r"  # ColorBrewer: orange is slower, purple faster; safe for colour-blind readers
LIMITS = (2, 5, 10, 20, 50, 100)  # percent at the ends of the colours
MARK: dict[str, Any] = {"marker": "<", "color": "#000000"}  # of a straggler
_MAX_NAMES = 16  # host names on an axis
_BAR_INCHES = 0.8  # of the bar of colours, with its numbers and name
_CHARACTERS_PER_INCH = 13  # of a title
_RANK_INCHES, _MOST_RANKS_INCHES = 0.12, 1.9  # of a printed rank, and panel
_MAX_LAUNCHES = 8  # names of launches on an axis


def needs_of_heat_maps(heat_maps: Sequence[HeatMap]) -> Needs:
    """A printed panel is as high as its ranks need to be seen, within bounds."""
    ranks = max(len(heat_map.ranks) for heat_map in heat_maps)
    return Needs(height=min(_MOST_RANKS_INCHES, 0.75 + _RANK_INCHES * ranks), fixed=True)


def draw_heat_maps(axes: Sequence[Axes], heat_maps: Sequence[HeatMap]) -> None:
    """Draw each heat map in a panel. All launches are equally wide, so that those of one place line up."""
    limit, grid = _limit(heat_maps), axes[0].get_gridspec()
    inches = (inches_wide(axes[0]) - _BAR_INCHES) / (grid.ncols if grid else 1)
    characters = max(8, int(_CHARACTERS_PER_INCH * inches))
    names = dict(sorted({place: name for one in heat_maps for place, name, _ in one.launches}.items()))
    for panel, heat_map in zip(axes, heat_maps, strict=True):
        image = _draw_one(panel, heat_map, limit=limit, characters=characters)
        for place in list(names)[1:]:
            panel.axvline(place, color=RIM, linewidth=0.4)
        panel.set_xlabel("windows, by launch")
        panel.tick_params(length=0)
        panel.grid(visible=False)
    _launch_axis(axes[0], names)
    _rank_axis(axes[0], heat_maps[0].hosts)
    bar = axes[0].figure.colorbar(image, ax=axes, fraction=0.035, pad=0.02, extend="both")
    bar.set_label("slower than\nthe median rank [%]", fontsize=7)
    bar.ax.tick_params(labelsize=7)


def heat_map_handles(heat_maps: Sequence[HeatMap]) -> list[Line2D]:
    """Legend entries for marked ranks and for lines between hosts; none without a heat map."""
    late = any(one.late for one in heat_maps)
    mark = Line2D([], [], linestyle="", markersize=4, markeredgewidth=0, label="straggler", **MARK)
    handles = [mark] if late else []
    lines = Line2D([], [], color=RIM, linewidth=0.7, label="between hosts and between launches")
    return [*handles, lines] if heat_maps else []


def _draw_one(axes: Axes, heat_map: HeatMap, *, limit: float, characters: int) -> AxesImage:
    values = 100 * (np.array(heat_map.values) - 1)
    num_ranks, num_windows = values.shape
    ends = [*(first for *_, first in heat_map.launches), num_windows]
    for (place, *_), (first, end) in zip(heat_map.launches, pairwise(ends), strict=True):
        image = axes.imshow(
            values[:, first:end],
            aspect="auto",
            cmap=COLORS,
            vmin=-limit,
            vmax=limit,
            interpolation="nearest",
            extent=(place, place + 1, num_ranks - 0.5, -0.5),
        )
    first_ranks = _first_ranks(heat_map.hosts)
    for rank in first_ranks[1:]:
        axes.axhline(rank - 0.5, color=RIM, linewidth=0.7 if len(first_ranks) <= _MAX_NAMES else 0.2)
    axes.set_title(textwrap.fill(heat_map.title, characters), loc="left", fontsize=7.5)
    for rank in heat_map.late:
        axes.plot(
            [1.015],
            [heat_map.ranks.index(rank)],
            transform=axes.get_yaxis_transform(),
            clip_on=False,
            markersize=4 if num_ranks <= 32 else 2.5,
            markeredgewidth=0,
            **MARK,
        )
    return image


def _launch_axis(axes: Axes, names: Mapping[int, str]) -> None:
    step = -(-len(names) // _MAX_LAUNCHES)
    axes.set_xlim(0, len(names))
    axes.xaxis.set_major_locator(FixedLocator([place + 0.5 for place in list(names)[::step]]))
    axes.xaxis.set_major_formatter(FixedFormatter(list(names.values())[::step]))


def _first_ranks(hosts: Sequence[str]) -> list[int]:
    """The first rank of each host."""
    sizes = [len(list(group)) for _, group in groupby(hosts)]
    return [0, *(int(end) for end in np.cumsum(sizes)[:-1])]


def _rank_axis(axes: Axes, hosts: Sequence[str]) -> None:
    """Label the axis with host names if there are several and not too many, else with rank numbers."""
    first = _first_ranks(hosts)
    if 1 < len(first) <= _MAX_NAMES:
        places = [(begin + end - 1) / 2 for begin, end in pairwise([*first, len(hosts)])]
        axes.yaxis.set_major_locator(FixedLocator(places))
        axes.set_yticklabels([_short(hosts[rank]) for rank in first])
        axes.set_ylabel(f"{len(hosts)} ranks, by host")
    else:
        axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_ylabel("rank" if len(first) == 1 else f"rank, on {len(first)} hosts")


def _short(name: str) -> str:
    return name if len(name) <= 12 else f"{name[:5]}…{name[-6:]}"


def _limit(heat_maps: Sequence[HeatMap]) -> float:
    """Limit of the colour scale in percent: beyond 99 % of the values, so that outliers do not stretch it."""
    values = np.concatenate([np.abs(100 * (np.array(one.values) - 1)).ravel() for one in heat_maps])
    needed = float(np.quantile(values, 0.99))
    return next((limit for limit in LIMITS if limit >= needed), LIMITS[-1])
