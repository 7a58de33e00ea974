"""Every case with a result, as one point over the time of the study, with its step times.

Outlying launches and windows are marked, but count in all numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from dlscale.analysis.efficiency import ScalingRow
from dlscale.analysis.measured import Block, CellLaunches, MeasuredCase, good_launches
from dlscale.analysis.outliers import Outlier, Outliers, windows_out
from dlscale.analysis.records import start_time
from dlscale.analysis.render.html.model import Axis, Guide, Plot, Point, Series
from dlscale.analysis.render.tables import CONTROL_NAMES, Tags, tags_of, workload_title
from dlscale.analysis.render.text import backend_name, number, plural


def by_start(measured: Iterable[CellLaunches]) -> list[CellLaunches]:
    """The good launches of all cells, separately by kind of evidence, in the order of their first starts."""
    return sorted(
        good_launches(measured),
        key=lambda launches: min((record.started_at, record.case.id) for record in launches.records),
    )


def launch_plot(measured: Iterable[CellLaunches], out: OutlierMarks) -> Plot | None:
    """Each launch's rate relative to its cell's median, over time; None for fewer than 2 launches with a time.

    Changes common to all cells come from the machine, and cancel in paired ratios. Outliers, in `out`, have a ring.
    """
    points: dict[tuple[str, str, Tags], list[Point]] = {}
    for launches in by_start(measured):
        cell = launches.cell
        key, where = (backend_name(cell), launches.evidence, tags_of(cell)), key_of(launches)
        middle = float(np.median([case.samples_per_second for case in launches.cases]))
        for case in launches.cases:
            if began := start_time(case.record.started_at):
                flagged, more = out.of(where, case)
                ratio = case.samples_per_second / middle
                points.setdefault(key, []).append(
                    _point(case, began, ratio=ratio, more=more, flagged=flagged)
                )
    if sum(map(len, points.values())) < 2:
        return None
    series = tuple(
        Series(name=name, look=name, evidence=evidence, points=tuple(curve_points), tags=tags)
        for (name, evidence, tags), curve_points in sorted(points.items(), key=lambda item: _order(*item[0]))
    )
    rings = sum(point.flagged for curve in series for point in curve.points)
    low, high = np.percentile([point.y for curve in series for point in curve.points], [5, 95])
    return Plot(
        name="every-launch",
        title="Samples per second over the median of the cell",
        says=(
            f"{sum(len(curve.points) for curve in series)} launches, each relative to the median of its cell: nine of "
            f"ten lie between {100 * (low - 1):+.1f} % and {100 * (high - 1):+.1f} %."
            + (f" {plural(rings, 'launch')} stand{'s' * (rings == 1)} out." if rings else "")
        ),
        x=Axis(title="begin of the launch (UTC)", kind="time"),
        y=Axis(title="of the median [%]", kind="percent"),
        series=series,
        guides=(Guide(label="median", y=1.0),),
        table="steps",
        flag=RING if rings else "",
    )


def _order(name: str, evidence: str, tags: Tags) -> tuple[object, ...]:
    return name != "none", name, evidence, tags.workload, tags.framework


def _point(
    case: MeasuredCase, began: datetime, *, ratio: float, more: tuple[str, ...], flagged: bool
) -> Point:
    cell = case.cell
    what = [workload_title(cell.workload), cell.framework, CONTROL_NAMES[cell.control]]
    return Point(
        x=1000 * began.timestamp(),
        y=ratio,
        lines=(
            f"{backend_name(cell)}, {plural(cell.num_ranks, 'rank')}, block {case.block[1]}",
            ", ".join(filter(None, what)),
            f"{number(case.samples_per_second)} samples/s, {100 * (ratio - 1):+.1f} % (1 launch)",
            *more,
        ),
        flagged=flagged,
    )


Key = tuple[str, str, str]  # system, cell, kind of evidence


def key_of(launches: CellLaunches) -> Key:
    """The key of good launches of one kind of evidence."""
    return launches.family.system, launches.id, launches.evidence


RING = "stands out, and counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierMarks:
    """Outliers of all cells, by system, cell and kind of evidence."""

    cells: Mapping[Key, Outliers]
    launches: Mapping[tuple[Key, Block], Outlier]

    def of(self, key: Key, case: MeasuredCase) -> tuple[bool, tuple[str, ...]]:
        """Whether a launch is an outlier, and tooltip lines on it and on its windows."""
        outlier = self.launches.get((key, case.block))
        cell = self.cells.get(key)
        windows = _windows(case) if cell and cell.num_windows_out else ()
        return outlier is not None, (*([how_far(outlier)] if outlier else []), *windows)


def outlier_marks(rows: Iterable[ScalingRow]) -> OutlierMarks:
    """The outliers in the table's rows."""
    cells = {
        (row.family.system, row.cell.id, str(row.evidence)): row.outliers for row in rows if row.outliers
    }
    return OutlierMarks(
        cells=cells,
        launches={(key, out.block): out for key, outliers in cells.items() for out in outliers.launches},
    )


def how_far(outlier: Outlier) -> str:
    """`stands out: its steps take 12 % longer than its cell and its block let expect, never steady`."""
    side = "longer" if outlier.factor > 1 else "less"
    unsteady = "" if outlier.steady else ", never steady"
    size = f"{100 * abs(outlier.factor - 1):.0f} %"
    return f"stands out: its steps take {size} {side} than its cell and its block let expect{unsteady}"


def _windows(case: MeasuredCase) -> tuple[str, ...]:
    """A line about the outlying windows of a launch; none without any."""
    out = windows_out(case.seconds)
    if not out.any():
        return ()
    num, longest = int(out.sum()), float(case.seconds[out].max() / case.world)
    some = f"{num} of {plural(len(out), 'window')} stand{'s' * (num == 1)} out"
    return (f"{some}, the longest {longest:.2f} times the median",)
