"""The distribution of step times: the share of windows whose steps took at most a given time, one curve per backend."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    PercentFormatter,
)
from numpy.typing import NDArray

from dlscale.analysis.curves import Curve
from dlscale.analysis.families import Family, on_most_ranks
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    RIM,
    SINGLE_COLUMN_INCHES,
    evidence_handles,
    evidence_text,
    line_style,
    looks_of,
    marker_style,
)
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.findings.small_print import origin, parity, span, warning
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.launches import CellLaunches, good_launches
from dlscale.analysis.metrics import step_seconds
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.records import Seconds, algorithm_text, options_text, settings_text
from dlscale.analysis.render.theme import Look
from dlscale.analysis.text import backend_name, number, plural

MAX_POINTS = 1000  # per curve; more windows are thinned evenly, keeping the first and the last
_WIDE = 4  # the axis is logarithmic above this ratio of slowest to fastest window


def draw(
    family: Family,
    rows: Sequence[ScalingRow],
    provenance: Provenance,
    measured: Sequence[CellLaunches],
    form: Form = SCREEN,
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure and its points, for the family's largest number of ranks; None without any."""
    trained = good_launches(measured, controls={"train"})
    own = [launches for launches in trained if launches.family == family and form.draws(launches.cell)]
    shown = sorted(on_most_ranks(own), key=_order)
    if not shown:
        return None
    curves = [_curve(launches) for launches in shown]
    pooled = [ascending(launches) for launches in shown]
    width = SINGLE_COLUMN_INCHES if len({curve.name for curve in curves}) <= 5 else DOUBLE_COLUMN_INCHES
    figure, (axes,) = figure_with_axes(
        form=form,
        width=width,
        num_panels=1,
        title=family.title,
        warning=warning(rows) if rows else "",
        subtitle=f"{plural(shown[0].cell.num_ranks, 'rank')}; {family.constants}",
        handles=[*_handles(curves), *evidence_handles(curves, form)],
        small_print=_small_print(rows, shown, own, provenance, evidence_text(curves, form)),
    )
    slowest = max(float(seconds[-1]) for seconds in pooled)
    unit, factor = ("ms", 1000.0) if slowest < 1 else ("s", 1.0)
    looks = looks_of(curves)
    for index, (launches, curve) in enumerate(zip(shown, curves, strict=True)):
        height = -_pitch(len(shown)) * (index + 1)
        _draw_one(axes, launches, looks[curve.name], factor=factor, height=height)
    axes.axhline(0.0, color=RIM, linewidth=0.5, zorder=1)
    _axes(axes, factor * min(float(seconds[0]) for seconds in pooled), factor * slowest, unit)
    axes.set_ylim(-_pitch(len(shown)) * (len(shown) + 0.8), 1.03)
    pair = rows[0].pair if rows else None
    return figure, [
        row | {"comparable": pair and pair.comparable} for launches in shown for row in _rows(launches)
    ]


def _draw_one(axes: Axes, launches: CellLaunches, look: Look, *, factor: float, height: float) -> None:
    """Draw a curve, and its median at `height` in the strip below, clear of the other curves' medians."""
    seconds, shares = points(ascending(launches))
    # Start at 0, so that the first step is as high as all others.
    axes.step(
        factor * np.concatenate([seconds[:1], seconds]),
        np.concatenate([[0.0], shares]),
        where="post",
        label=backend_name(launches.cell),
        zorder=2,
        **line_style(look, joined=True),
    )
    typical = step_seconds(launches).times(factor)
    bars = [[nan if typical.low is None else typical.center - typical.low],
            [nan if typical.high is None else typical.high - typical.center]]  # fmt: skip
    axes.errorbar(
        [typical.center],
        [height],
        xerr=bars,
        ecolor=RIM,
        elinewidth=0.7,
        capsize=1.8,
        barsabove=True,
        linestyle="",
        zorder=3,
        label="median",
        **marker_style(look, launches.evidence),
    )


def _pitch(count: int) -> float:
    """Distance between two medians in the strip below the curves."""
    return min(0.07, 0.42 / count)


def ascending(launches: CellLaunches) -> Seconds:
    """Seconds per step of the windows of all launches together."""
    return np.sort(np.concatenate([case.seconds for case in launches.cases]))


def points(seconds: Seconds) -> tuple[Seconds, NDArray[np.float64]]:
    """Ascending seconds per step, and the share of windows that took at most as long; at most MAX_POINTS of them."""
    count = len(seconds)
    chosen = np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).round().astype(int))
    return seconds[chosen], (chosen + 1) / count


def _axes(axes: Axes, low: float, high: float, unit: str) -> None:
    axes.yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.set_ylabel("windows that took no longer [%]")
    axes.set_xlabel(f"time per step [{unit}]")
    if high / low > _WIDE:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.08, high * 1.08)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        margin = 0.04 * (high - low) or 0.5 * high
        axes.set_xlim(low - margin, high + margin)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _order(launches: CellLaunches) -> tuple[object, ...]:
    cell = launches.cell
    return cell.backend != "none", cell.method, settings_text(cell.options), cell.num_servers


def _curve(launches: CellLaunches) -> Curve:
    return Curve(
        name=backend_name(launches.cell),
        backend=launches.cell.backend,
        evidence=launches.evidence,
        rows=(),
    )


def _handles(curves: Sequence[Curve]) -> list[Line2D]:
    return [
        Line2D([], [], label=name, **line_style(look, joined=True), **marker_style(look, "measured"))
        for name, look in looks_of(curves).items()
    ]


def _rows(launches: CellLaunches) -> list[dict[str, Any]]:
    pooled = ascending(launches)
    seconds, shares = points(pooled)
    common = {
        "system": launches.family.system,
        **launches.cell.model_dump(exclude={"control"}),
        "backend_options": options_text(launches.cell),
        "algorithm": launches.cell.algorithm,
        "algorithm_options": algorithm_text(launches.cell),
        "evidence": launches.evidence,
        "num_launches": len(launches.cases),
        "num_windows": len(pooled),
    }
    return [
        {**common, "seconds_per_step": second, "share_of_windows": share}
        for second, share in zip(seconds.tolist(), shares.tolist(), strict=True)
    ]


def _small_print(
    rows: Sequence[ScalingRow],
    shown: Sequence[CellLaunches],
    own: Sequence[CellLaunches],
    provenance: Provenance,
    evidence: Sequence[str],
) -> list[str]:
    counts = span([len(launches.cases) for launches in shown])
    num_windows = [sum(len(case.seconds) for case in launches.cases) for launches in shown]
    names = [backend_name(launches.cell) for launches in shown]
    windows = "; ".join(f"{name} {num}" for name, num in zip(names, num_windows, strict=True))
    typical = [step_seconds(launches) for launches in shown]
    levels = sorted({100 * interval.level for interval in typical if interval.low is not None})
    bars = ", ".join(f"{level:.1f}" for level in levels)
    text = [
        f"The slowest rank's time per step of every window after the warm-up, n = {counts} launches pooled; "
        f"windows: {windows}. Marks below: median over launches of each one's median,",
        f"with its {bars} % order-statistic interval."
        if levels
        else "no bars: an interval needs 6 launches.",
    ]
    if max(num_windows) > MAX_POINTS:
        text.append(f"Curves are drawn through {MAX_POINTS} of their windows.")
    if left_out := sorted({backend_name(launches.cell) for launches in own} - set(names)):
        text.append(f"Not on as many ranks: {', '.join(left_out)}.")
    text += evidence
    cells = {launches.cell.id for launches in shown}
    return [
        " ".join(text),
        *(parity(rows) if rows else []),
        origin([row for row in rows if row.cell.id in cells], provenance),
    ]
