"""Draws the figures that findings declare: their plots as panels, in the look of all figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import nan
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dlscale.analysis.figures.drawing import (
    CHARACTER_INCHES,
    DOUBLE_COLUMN_INCHES,
    EVIDENCE,
    GREY,
    IDEAL,
    LINE_INCHES,
    REFERENCE,
    RIM,
    SINGLE_COLUMN_INCHES,
    line_style,
    marker_style,
)
from dlscale.analysis.figures.heat_maps import draw_heat_maps, heat_map_handles, needs_of_heat_maps
from dlscale.analysis.figures.layout import (
    PANEL_HEIGHT_INCHES,
    Captioned,
    Needs,
    figure_with_axes,
    printed_grid,
    printed_rows,
)
from dlscale.analysis.figures.losses import draw_losses, loss_handles, needs_of_losses
from dlscale.analysis.figures.scales import places_apart, scale_x, scale_y
from dlscale.analysis.form import SCREEN, Caption, Form
from dlscale.analysis.plots import Area, Figure, Guide, HeatMap, Loss, Plot, Point, Series
from dlscale.analysis.render.theme import Look, looks_for

BAND_ALPHA = 0.18
_ALONE = 2**0.12  # half the width of the band of a single point, as a factor
_STACK = 0.7  # width of a stack; 1 is the distance to the nearest other one
# From the colour map "cividis", uniform for colour-blind readers too; dark to light from the lowest layer.
LAYERS = ("#00224E", "#434E6C", "#7D7C78", "#BCAF6F", "#FEE838")
_STACKS_INCHES = 1.5  # the narrowest panel of stacks
_CHARACTER = 0.018  # width of one in a text beside a point, as a share of the axes
MEASURED = "measured"
DOTTED = (0, (1, 1.2))  # the line of a band
AREA: dict[str, Any] = {"color": "#b3b3b3", "alpha": 0.45, "linewidth": 0, "zorder": 0.5}
THICK: dict[str, Any] = {"color": "#b3b3b3", "linewidth": 4, "solid_capstyle": "butt", "zorder": 1.2}
WORDS: dict[str, Any] = {
    "fontsize": 6.3,
    "color": RIM,
    "zorder": 4,
    "textcoords": "offset points",
    "bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
}
ENDS = {"reached": "o", "budget": "x", "diverged": "X"}  # markers of a training's last evaluation
# Lines that are not measured are grey; in the order of the legend.
GUIDES: tuple[dict[str, Any], ...] = (
    REFERENCE,
    REFERENCE | {"linestyle": (0, (4, 1.5))},
    REFERENCE | {"linestyle": (0, (4, 1.5, 1, 1.5))},
    REFERENCE | {"linestyle": "solid", "color": RIM},
)


def draw(declared: Figure, form: Form = SCREEN) -> Captioned:
    """The figure for a screen, with all words around its panels, or in print with its caption beside it."""
    plots = [panel for panel in declared.panels if isinstance(panel, Plot)]
    losses = [panel for panel in declared.panels if isinstance(panel, Loss)]
    heat_maps = [panel for panel in declared.panels if isinstance(panel, HeatMap)]
    looks = _looks(plots)
    figure, axes = figure_with_axes(
        form=form,
        width=DOUBLE_COLUMN_INCHES if declared.wide else SINGLE_COLUMN_INCHES,
        num_panels=len(declared.panels),
        num_rows=declared.num_rows,
        caption=Caption(
            title=declared.title,
            warning=declared.warning,
            brief=" ".join(filter(None, (declared.brief, _evidence(plots)))),
            subtitle=declared.subtitle,
            small_print=declared.small_print,
        ),
        handles=[*_handles(plots, looks), *loss_handles(losses), *heat_map_handles(heat_maps)],
        shared=declared.shared or not plots,
        least=needs_of(declared),
        panel_height=min(needs_of(declared).height, PANEL_HEIGHT_INCHES)
        if declared.small
        else PANEL_HEIGHT_INCHES,
    )
    for place, (panel, plot) in enumerate(zip(axes, plots, strict=False)):
        draw_plot(panel, plot, looks, last=plot is plots[-1])
        if place and declared.shared:
            panel.set_ylabel("")
    if losses:
        draw_losses(axes, losses, width=float(figure.get_figwidth()), printed=form.printed)
    if heat_maps:
        draw_heat_maps(axes, heat_maps)
    return figure


def on_pages(declared: Figure, form: Form) -> list[Figure]:
    """The figure, as several where a printed page has no room for all its panels; the first one has the rows."""
    if form.width is None:
        return [declared]
    panels, in_row, needs = declared.panels, len(declared.panels) // declared.num_rows, needs_of(declared)
    grid = printed_grid(form.width, needs, num_panels=len(panels), num_rows=declared.num_rows)
    fitting = printed_rows(needs)
    together = in_row if declared.num_rows > 1 else grid.columns  # panels of one row stay in one figure
    groups = -(-len(panels) // together)
    num_pages = -(-groups // max(1, fitting * grid.columns // together))
    each = -(-groups // num_pages) * together
    return [
        replace(
            declared,
            panels=panels[first : first + each],
            num_rows=len(panels[first : first + each]) // in_row if declared.num_rows > 1 else 1,
            rows=() if first else declared.rows,
            title=declared.title + (f" ({first // each + 1} of {num_pages})" if num_pages > 1 else ""),
        )
        for first in range(0, len(panels), each)
    ]


def needs_of(declared: Figure) -> Needs:
    """What the words of a panel of the figure need in print."""
    if losses := [panel for panel in declared.panels if isinstance(panel, Loss)]:
        return needs_of_losses(losses)
    if heat_maps := [panel for panel in declared.panels if isinstance(panel, HeatMap)]:
        return needs_of_heat_maps(heat_maps)
    plots = [panel for panel in declared.panels if isinstance(panel, Plot)]
    rows = max((len(plot.y.ticks) for plot in plots if plot.y.kind == "names"), default=0)
    title = max((len(plot.y.title) for plot in plots), default=0)
    least = Needs(width=_STACKS_INCHES) if plots and all(plot.stacks for plot in plots) else Needs()
    words = max(0.6 + LINE_INCHES * rows, 0.3 + CHARACTER_INCHES * title)
    return replace(least, height=max(least.height, words))


def _looks(plots: Sequence[Plot]) -> dict[str, Look]:
    every = [series for plot in plots for series in plot.series]
    return looks_for({series.look: series.tags.backend for series in every})


def draw_plot(axes: Axes, plot: Plot, looks: Mapping[str, Look], *, last: bool = True) -> None:
    """Draw a plot; only the `last` of a row names the axis of bars behind its points."""
    if plot.title:
        axes.set_title(plot.title, loc="left")
    scale_x(axes, plot.x)
    for place, guide in enumerate(plot.guides):
        _draw_guide(axes, guide, _guide_style(plot.guides, place))
    if plot.bars:
        _draw_bars(axes, plot, looks, last=last)
    for series in plot.series:
        look = looks[series.look]
        if series.training:
            _draw_training(axes, series, look)
        elif series.stairs:
            _draw_stairs(axes, series, look)
        elif series.points:
            (_draw_band if series.band else _draw_points)(axes, series, look)
    if plot.stacks:
        _draw_stacks(axes, plot)
    scale_y(axes, plot.y)
    for area in plot.areas:
        _draw_area(axes, area)
    _write_labels(axes, [point for series in plot.series for point in series.points])
    known = plot.stacks or plot.areas or any(series.points for series in plot.series)
    if not known:
        axes.text(0.5, 0.5, plot.says, transform=axes.transAxes, ha="center")


def _draw_points(axes: Axes, series: Series, look: Look) -> None:
    axes.errorbar(
        [point.x for point in series.points],
        [point.y for point in series.points],
        # NaN draws no bar: a point without an interval must not look like one with a tiny interval.
        yerr=np.transpose([_whiskers(point.y, point.low, point.high) for point in series.points]),
        xerr=np.transpose([_whiskers(point.x, point.left, point.right) for point in series.points])
        if any(point.left is not None for point in series.points)
        else None,
        # Bars lie on top of each other, and only their colour says whose they are.
        ecolor=look.color,
        elinewidth=0.7,
        capsize=1.8,
        zorder=3,
        label=series.name,
        **line_style(look, joined=series.joined),
        **marker_style(look, series.evidence),
    )


def _draw_stairs(axes: Axes, series: Series, look: Look) -> None:
    places, heights = ([getattr(point, side) for point in series.points] for side in ("x", "y"))
    axes.step(
        places, heights, where="post", label=series.name, zorder=2, **line_style(look, joined=series.joined)
    )


def _whiskers(y: float, low: float | None, high: float | None) -> tuple[float, float]:
    if low is None and high is None:
        return nan, nan
    return 0.0 if low is None else y - low, 0.0 if high is None else high - y


def _draw_band(axes: Axes, series: Series, look: Look) -> None:
    places = [point.x for point in series.points]
    low, high = ([getattr(point, side) for point in series.points] for side in ("low", "high"))
    ends = places
    if len(places) == 1:
        ends, low, high = [places[0] / _ALONE, places[0] * _ALONE], low * 2, high * 2
    axes.fill_between(ends, low, high, color=look.color, alpha=BAND_ALPHA, linewidth=0, zorder=1.4)
    line = line_style(look, joined=series.joined) | ({"linestyle": DOTTED} if series.joined else {})
    heights = [point.y for point in series.points]
    axes.plot(places, heights, zorder=2.5, **line, **marker_style(look, series.evidence))


def _draw_training(axes: Axes, series: Series, look: Look) -> None:
    if series.training is None or not series.points:
        return
    style: dict[str, Any] = {"color": look.color, "alpha": series.training.shade}
    axes.plot([p.x for p in series.points], [p.y for p in series.points], linewidth=0.7, **style)
    end = series.points[-1]
    axes.plot([end.x], [end.y], marker=ENDS[series.training.end], markersize=3.2, **style)


def _draw_area(axes: Axes, area: Area) -> None:
    left, right = (edge if end is None else end for end, edge in zip(area.x, axes.get_xlim(), strict=True))
    low, high = (edge if end is None else end for end, edge in zip(area.y, axes.get_ylim(), strict=True))
    if area.rising or left == right or low == high:
        axes.plot([left, right], [low, high], **THICK)
    else:
        axes.fill_between([left, right], low, high, **AREA)
    middle = (left * right) ** 0.5 if axes.get_xscale() == "log" else (left + right) / 2
    if left == right:
        _write_beside(axes, area.text, (left, low if area.y[1] is None else high))
    elif area.rising:
        _write_beside(axes, area.text, (middle, (low + high) / 2), lift=-6)
    else:
        lift = -8 if low > axes.get_ylim()[0] else 8
        axes.annotate(area.text, (middle, low), xytext=(0, lift), ha="center", va="center", **WORDS)


def _write_labels(axes: Axes, points: Sequence[Point]) -> None:
    """Write the labels of points beside them, off other points, whose places are compared as shares of the axes."""
    if not any(point.label for point in points):
        return
    to_shares = axes.transData + axes.transAxes.inverted()
    places = to_shares.transform([(point.x, point.y) for point in points])
    for point, place in zip(points, places, strict=True):
        apart = places - place
        near = apart[(abs(apart[:, 1]) < 0.06) & (apart != 0).any(axis=1)]
        above_other = [bool(up < 0) for across, up in near if abs(across) < 0.01]
        lift = 4.0 if not above_other else 3.5 if above_other[0] else -3.5
        crowded = any(0.01 < across < 0.03 + _CHARACTER * len(point.label) for across, _ in near)
        _write_beside(axes, point.label, (point.x, point.y), lift=lift, left=crowded)


def _write_beside(
    axes: Axes, text: str, place: tuple[float, float], *, lift: float = 0.0, left: bool = False
) -> None:
    """Write a text to the right of a place, or where the axes end or with `left` to the left of it."""
    share, _ = (axes.transData + axes.transAxes.inverted()).transform(place)
    to_left = left or share + _CHARACTER * len(text) > 1
    shift, side = (-6, "right") if to_left else (6, "left")
    if text:
        axes.annotate(text, place, xytext=(shift, lift), ha=side, va="center", **WORDS)


def _draw_guide(axes: Axes, guide: Guide, style: Mapping[str, Any]) -> None:
    if guide.y is not None:
        axes.axhline(guide.y, **style)
    else:
        places, heights = zip(*guide.points, strict=True)
        axes.plot(places, heights, **style, scalex=False)


def _guide_style(guides: Sequence[Guide], place: int) -> dict[str, Any]:
    if guides[place].label == "ideal":
        return IDEAL
    if not guides[place].label:
        return {"color": RIM, "linewidth": 0.5, "zorder": 1}
    others = list(dict.fromkeys(guide.label for guide in guides if guide.label not in ("", "ideal")))
    return GUIDES[others.index(guides[place].label) % len(GUIDES)] | {"label": guides[place].label}


def _draw_stacks(axes: Axes, plot: Plot) -> None:
    """Draw a stack of bars at each place of a logarithmic axis, as wide as the nearest other place allows."""
    places = sorted(stack.x for stack in plot.stacks)
    half = min((after / before for before, after in pairwise(places)), default=2.0) ** (_STACK / 2)
    style: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.4}
    words: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 6, "color": RIM}
    numbered = places_apart(axes, plot.x, [(stack.x, stack.label) for stack in plot.stacks])
    for stack in plot.stacks:
        left, width, bottom = stack.x / half, stack.x * (half - 1 / half), 0.0
        for height, color in zip(stack.heights, LAYERS, strict=False):
            axes.bar(left, height, width, bottom=bottom, color=color, **style)
            bottom += height
        if stack.x in numbered:
            axes.annotate(stack.label, (stack.x, bottom), xytext=(0, 2), **words)
    axes.grid(visible=False, axis="x")
    axes.tick_params(axis="x", length=0)


def _draw_bars(axes: Axes, plot: Plot, looks: Mapping[str, Look], *, last: bool) -> None:
    if plot.bars is None:
        return
    behind = axes.twinx()
    axes.set_zorder(behind.get_zorder() + 1)
    axes.patch.set_visible(False)
    half = plot.bars.width**0.5
    for look, heights in plot.bars.heights.items():
        places = [place * plot.bars.asides[look] for place, _ in heights]
        behind.bar(
            [place / half for place in places],
            [height for _, height in heights],
            width=[place * (half - 1 / half) for place in places],
            align="edge",
            color=looks[look].color,
            alpha=0.28,
            linewidth=0,
        )
    behind.grid(visible=False)
    behind.set_ylim(0, plot.bars.high)
    behind.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    behind.tick_params(axis="y", colors=GREY, length=2 * last, labelright=last)
    if last:
        behind.set_ylabel(plot.bars.title, color=GREY)


def _handles(plots: Sequence[Plot], looks: Mapping[str, Look]) -> list[Line2D]:
    every = [series for plot in plots for series in plot.series]
    layers = dict.fromkeys(layer for plot in plots for layer in plot.layers)
    handles = [
        Line2D([], [], color=color, linewidth=5, solid_capstyle="butt", label=layer)
        for layer, color in zip(layers, LAYERS, strict=False)
    ]
    named = any(plot.y.kind == "names" for plot in plots)
    for name, look in () if named else looks.items():
        own = [series for series in every if series.look == name]
        style = line_style(look, joined=any(series.joined for series in own))
        if all(series.band for series in own):
            style["linestyle"] = DOTTED
        handles.append(Line2D([], [], label=name, **style | marker_style(look, own[0].evidence)))
    styles: dict[str, dict[str, Any]] = {}
    for plot in plots:
        for place, guide in enumerate(plot.guides):
            if guide.label:
                styles.setdefault(guide.label, _guide_style(plot.guides, place))
    handles += [Line2D([], [], **style) for style in styles.values()]
    bars = next((plot.bars for plot in plots if plot.bars), None)
    if bars:
        handles.append(Line2D([], [], color="#bbbbbb", linewidth=5, solid_capstyle="butt", label=bars.label))
    return [*handles, *_evidence_handles(every), *_band_handles(every)]


def _evidence_handles(every: Sequence[Series]) -> Iterator[Line2D]:
    """Entries for the markers' filling; none where all points are measured."""
    kinds = {series.evidence for series in every}
    if kinds != {MEASURED}:
        for kind in (kind for kind in EVIDENCE if kind in kinds):
            line = {"linestyle": DOTTED, "color": GREY} if kind == "simulated" else {"linestyle": ""}
            yield Line2D([], [], label=kind, **line, **marker_style(None, kind))


def _band_handles(every: Sequence[Series]) -> Iterator[Line2D]:
    style: dict[str, Any] = {"color": GREY, "linewidth": 7, "alpha": BAND_ALPHA, "solid_capstyle": "butt"}
    if any(series.band for series in every):
        yield Line2D([], [], label="band of predictions", **style)


def _evidence(plots: Sequence[Plot]) -> str:
    """What a printed caption says of points that were not measured and are all of one kind."""
    kinds = {series.evidence for plot in plots for series in plot.series} - {MEASURED}
    return f"Points are {kinds.pop()}." if len(kinds) == 1 else ""
