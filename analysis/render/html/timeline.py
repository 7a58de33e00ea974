"""Every case with a result, as one point over the time of the study, with its step times.

Outlying launches and windows are marked, but count in all numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.efficiency import ScalingRow
from dlscale.analysis.findings.outliers import (
    MIN_WINDOWS,
    Outlier,
    Outliers,
    deviations,
    stands_out,
    usual_deviation,
)
from dlscale.analysis.records import APART, latest_good, start_skew, world_step_seconds
from dlscale.analysis.render.html.labels import start_time
from dlscale.analysis.render.html.model import Axis, Guide, Plot, Point, Series
from dlscale.analysis.render.tables import CONTROL_NAMES, Tags, tags_of, workload_title
from dlscale.analysis.render.text import backend_name, number, plural
from dlscale.benchmarks.records.record import Cell, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """The attempt at a case that counts. `seconds` are the slowest rank's per step, one per steady window, [W].

    `samples_per_second` is the value of this launch: the batch over its median step.
    """

    cell: Cell
    system: str
    study: str
    evidence: str
    block: int
    began: datetime | None  # UTC
    steady: bool
    start_skew: float  # fraction of a window
    seconds: NDArray[np.float64]
    samples_per_second: float

    @property
    def key(self) -> Key:
        """(system, cell, kind of evidence)."""
        return self.system, self.cell.id, self.evidence


def launches_of(records: Iterable[Record]) -> list[MeasuredCase]:
    """The latest good attempt of each case, ordered by start; without canaries and communication-only cases."""
    measured = [record for record in latest_good(records) if record.case.cell.control not in APART]
    ordered = sorted(
        measured, key=lambda record: (record.started_at, record.system, record.study, record.case.id)
    )
    return [_launch(record) for record in ordered]


def by_cell(launches: Iterable[MeasuredCase]) -> dict[Key, list[MeasuredCase]]:
    """The launches by system, cell and kind of evidence."""
    groups: dict[Key, list[MeasuredCase]] = {}
    for launch in launches:
        groups.setdefault(launch.key, []).append(launch)
    return groups


def launch_plot(launches: Sequence[MeasuredCase], out: OutlierMarks) -> Plot | None:
    """Each launch's rate relative to its cell's median, over time; None for fewer than 2 launches with a time.

    Changes common to all cells come from the machine, and cancel in paired ratios. Outliers, in `out`, have a ring.
    """
    points: dict[tuple[str, str, Tags], list[Point]] = {}
    for where, group in by_cell(launches).items():
        rates = [launch.samples_per_second for launch in group]
        middle = float(np.median(rates))
        for launch, rate in zip(group, rates, strict=True):
            if launch.began:
                key = (backend_name(launch.cell), launch.evidence, tags_of(launch.cell))
                flagged, more = out.of(where, (launch.study, launch.block), launch.seconds)
                point = _point(launch, launch.began, ratio=rate / middle, more=more, flagged=flagged)
                points.setdefault(key, []).append(point)
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


def _launch(record: Record) -> MeasuredCase:
    cell, seconds = record.case.cell, world_step_seconds(record)
    return MeasuredCase(
        cell=cell,
        system=record.system,
        study=record.study,
        evidence=record.evidence,
        block=record.case.block,
        began=start_time(record.started_at),
        steady=record.steady is not False,
        start_skew=start_skew(record),
        seconds=seconds,
        samples_per_second=float(cell.global_batch / np.median(seconds)),
    )


def _point(
    launch: MeasuredCase, began: datetime, *, ratio: float, more: tuple[str, ...], flagged: bool
) -> Point:
    cell = launch.cell
    what = [workload_title(cell.workload), cell.framework, CONTROL_NAMES[cell.control]]
    return Point(
        x=1000 * began.timestamp(),
        y=ratio,
        lines=(
            f"{backend_name(cell)}, {plural(cell.num_ranks, 'rank')}, block {launch.block}",
            ", ".join(filter(None, what)),
            f"{number(launch.samples_per_second)} samples/s, {100 * (ratio - 1):+.1f} % (1 launch)",
            *more,
        ),
        flagged=flagged,
    )


Key = tuple[str, str, str]  # system, cell, kind of evidence
RING = "stands out, and counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierMarks:
    """Outliers of all cells, by system, cell and kind of evidence."""

    cells: Mapping[Key, Outliers]
    launches: Mapping[tuple[Key, Hashable], Outlier]  # and by study and block

    def of(self, key: Key, block: Hashable, seconds: NDArray[np.float64]) -> tuple[bool, tuple[str, ...]]:
        """Whether a launch is an outlier, and tooltip lines on it and on its windows, which took `seconds`, [W]."""
        outlier = self.launches.get((key, block))
        cell = self.cells.get(key)
        windows = _windows(seconds) if cell and cell.num_windows_out else ()
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


def _windows(seconds: NDArray[np.float64]) -> tuple[str, ...]:
    """A line about the outlying windows of a launch, by the same rule as in the table; none without any."""
    if len(seconds) < MIN_WINDOWS:
        return ()
    logs = np.log(seconds)
    out = stands_out(deviations(logs), usual=usual_deviation(logs))
    if not out.any():
        return ()
    num, longest = int(out.sum()), float(seconds[out].max() / np.median(seconds))
    some = f"{num} of {plural(len(seconds), 'window')} stand{'s' * (num == 1)} out"
    return (f"{some}, the longest {longest:.2f} times the median",)
