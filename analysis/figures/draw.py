"""What all figures over ranks share: points with intervals, lines where they are true, the axis of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from dlscale.analysis.figures.curves import Curve, Value, dodge
from dlscale.analysis.figures.style import EVIDENCE, RIM, line_style, looks_of, marker_style
from dlscale.analysis.scaling import Row
from dlscale.analysis.statistics import Interval


def draw_curves(
    axes: Axes, curves: Sequence[Curve], value: Value, *, among: Sequence[Curve] | None = None
) -> None:
    """Each curve's points with their intervals, a line only where it is `joined`.

    The place and look of a curve follow from its name's position in `among`, by default in `curves`.
    """
    looks = looks_of(curves if among is None else among)
    names = list(looks)
    for curve in curves:
        look, factor = looks[curve.name], dodge(names.index(curve.name), len(names))
        points = [(row.cell.num_ranks, interval) for row in curve.rows if (interval := value(row))]
        axes.errorbar(
            [num_ranks * factor for num_ranks, _ in points],
            [one.center for _, one in points],
            # NaN draws no bar: a point without an interval must not look like one with a tiny interval.
            yerr=[
                [nan if one.low is None else one.center - one.low for _, one in points],
                [nan if one.high is None else one.high - one.center for _, one in points],
            ],
            # Dark and in front: an interval smaller than its marker is seen inside it.
            barsabove=True,
            ecolor=RIM,
            elinewidth=0.7,
            capsize=1.8,
            zorder=3,
            label=curve.name,
            **line_style(look, joined=curve.joined),
            **marker_style(look, curve.evidence),
        )


def curve_handles(curves: Sequence[Curve]) -> list[Line2D]:
    """One legend entry per name, whatever kinds of evidence share it."""
    handles = []
    for name, look in looks_of(curves).items():
        own = [curve for curve in curves if curve.name == name]
        joined = any(curve.joined for curve in own)
        style = line_style(look, joined=joined) | marker_style(look, own[0].evidence)
        handles.append(Line2D([], [], label=name, **style))
    return handles


def evidence_handles(curves: Sequence[Curve]) -> list[Line2D]:
    """Legend entries that explain the markers' filling, one per kind of evidence in the figure."""
    kinds = {curve.evidence for curve in curves}
    return [
        Line2D([], [], linestyle="", label=kind, **marker_style(None, kind))
        for kind in EVIDENCE
        if kind in kinds
    ]


def limits(intervals: Sequence[Interval]) -> tuple[float, float]:
    """The lowest and highest value that has to be visible."""
    return (
        min(one.center if one.low is None else one.low for one in intervals),
        max(one.center if one.high is None else one.high for one in intervals),
    )


def rank_axis(axes: Axes, rows: Sequence[Row]) -> None:
    """Octaves of ranks with plain numbers; where nodes differ, the nodes of each number of ranks below it."""
    nodes: dict[int, set[int]] = {}
    for row in rows:
        nodes.setdefault(row.cell.num_ranks, set()).add(row.cell.num_nodes)
    ranks = sorted(nodes)
    axes.set_xscale("log", base=2)
    axes.set_xlim(ranks[0] * 2**-0.45, ranks[-1] * 2**0.45)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(ranks))
    kinds = set().union(*nodes.values())
    if len(kinds) == 1:
        (num_nodes,) = kinds
        axes.set_xlabel(f"ranks, on {num_nodes} node{'s' * (num_nodes > 1)}")
        labels = {count: f"{count}" for count in ranks}
    else:
        axes.set_xlabel("ranks, below them nodes")
        labels = {count: f"{count}\n{'/'.join(map(str, sorted(nodes[count])))}" for count in ranks}
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: labels.get(round(value), "")))
