"""Every launch: its rate over the time of the study, step times of each cell, and what stands out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from dlscale.analysis.declare import Column, Table, TableOf, Tags, Value, shown_number, tags_of
from dlscale.analysis.finding import PLACE_COLUMNS, Finding, place_columns
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.outliers import outlier_columns
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.launches import Block, CellLaunches, MeasuredCase, good_launches
from dlscale.analysis.measured import Measured
from dlscale.analysis.outliers import Outlier, Outliers
from dlscale.analysis.plots import Axis, Guide, Plot, Point, Series
from dlscale.analysis.records import attributes, start_time
from dlscale.analysis.text import CONTROL_NAMES, backend_name, number, plural, workload_title
from dlscale.benchmarks.records.cell import Cell


def by_start(measured: Iterable[CellLaunches]) -> list[CellLaunches]:
    """The good launches of all cells, separately by kind of evidence, in the order of their first starts."""
    return sorted(
        good_launches(measured),
        key=lambda launches: min((record.started_at, record.case.id) for record in launches.records),
    )


def launch_plot(measured: Iterable[CellLaunches], out: OutlierMarks) -> Plot | None:
    """Each launch's rate relative to its cell's median, over time; None for fewer than 2 launches.

    Changes common to all cells come from the machine, and cancel in paired ratios. Outliers, in `out`, have a ring.
    """
    points: dict[tuple[str, str, Tags], list[Point]] = {}
    for launches in by_start(measured):
        cell = launches.cell
        key, where = (backend_name(cell), launches.evidence, tags_of(cell)), key_of(launches)
        middle = float(np.median([case.samples_per_second for case in launches.cases]))
        for case in launches.cases:
            began, (flagged, more) = start_time(case.record.started_at), out.of(where, case)
            ratio = case.samples_per_second / middle
            points.setdefault(key, []).append(_point(case, began, ratio=ratio, more=more, flagged=flagged))
    if sum(map(len, points.values())) < 2:
        return None
    series = tuple(
        Series(name=name, look=name, evidence=evidence, points=tuple(curve_points), tags=tags)
        for (name, evidence, tags), curve_points in sorted(
            points.items(), key=lambda item: _place_of(*item[0])
        )
    )
    rings = sum(point.flagged for curve in series for point in curve.points)
    low, high = np.percentile([point.y for curve in series for point in curve.points], [5, 95])
    return Plot(
        name="every-launch",
        title="Samples per second over the median of the cell",
        says=(
            f"{sum(len(curve.points) for curve in series)} cases, each relative to the median of its cell: nine of "
            f"ten lie between {100 * (low - 1):+.1f} % and {100 * (high - 1):+.1f} %."
            + (f" {plural(rings, 'case')} stand{'s' * (rings == 1)} out." if rings else "")
        ),
        x=Axis(title="begin of the launch (UTC)", kind="time"),
        y=Axis(title="of the median [%]", kind="percent"),
        series=series,
        guides=(Guide(label="median", y=1.0),),
        table="steps",
        flag=RING if rings else "",
    )


def _place_of(name: str, evidence: str, tags: Tags) -> tuple[object, ...]:
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
        lines = [how_far(outlier)] if outlier else []
        if cell and case.block in cell.windows_out:
            lines.append(_windows_text(*cell.windows_out[case.block], len(case.seconds)))
        return outlier is not None, tuple(lines)


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


def _windows_text(num_out: int, longest: float, num_windows: int) -> str:
    some = f"{num_out} of {plural(num_windows, 'window')} stand{'s' * (num_out == 1)} out"
    return f"{some}, the longest {longest:.2f} times the median"


PERCENTILES = (5, 50, 95, 99)


def _milliseconds(launches: CellLaunches) -> np.ndarray[Any, np.dtype[np.float64]]:
    return 1000 * np.concatenate([case.seconds for case in launches.cases])


def _percentile(percent: int) -> Callable[[CellLaunches], float]:
    return lambda launches: float(np.percentile(_milliseconds(launches), percent))


def _setting(system: str, cell: Cell, evidence: str | None) -> dict[str, Any]:
    return {
        "system": system,
        **attributes(cell, "workload preset framework"),
        "backend": backend_name(cell),
        "scaling_mode": cell.scaling_mode,
        "control": cell.control,
        "evidence": evidence,
        "num_ranks": cell.num_ranks,
    }


def _step_data(launches: CellLaunches) -> dict[str, Any]:
    milliseconds = _milliseconds(launches)
    quantiles = np.percentile(milliseconds, PERCENTILES)
    return {
        **_setting(launches.family.system, launches.cell, launches.evidence),
        **{
            f"p{percent}_milliseconds": float(value)
            for percent, value in zip(PERCENTILES, quantiles, strict=True)
        },
        "max_milliseconds": float(milliseconds.max()),
        "num_windows": len(milliseconds),
        "num_launches": len(launches.cases),
    }


STEP_TIMES = TableOf[CellLaunches](
    name="steps",
    caption="Step times",
    columns=(
        *PLACE_COLUMNS,
        *(
            Column("median" if percent == 50 else f"{percent} %", _percentile(percent), unit="ms")
            for percent in PERCENTILES
        ),
        Column("slowest", lambda launches: float(_milliseconds(launches).max()), unit="ms"),
        Column("windows", lambda launches: len(_milliseconds(launches))),
        Column("launches", lambda launches: len(launches.cases)),
    ),
    data=_step_data,
    legend="Each window's time over its steps, the slowest rank's. Slowest: the slowest window of all launches.",
    tags=lambda launches: tags_of(launches.cell),
)


def _order(launches: CellLaunches) -> tuple[object, ...]:
    cell = launches.cell
    return (
        *(launches.family, cell.backend != "none", backend_name(cell)),
        *(cell.control, cell.num_ranks, launches.evidence),
    )


Outlying = tuple[ScalingRow, Outliers]


def _outlying_launches(pair: Outlying) -> Value:
    """`1 of 6: block 3 +12 %`, as excess time."""
    outliers = pair[1]
    text = f"{len(outliers.launches)} of {outliers.num_launches}"
    if outliers.launches:
        blocks = (f"block {out.block[1]} {100 * (out.factor - 1):+.0f} %" for out in outliers.launches)
        text += f": {', '.join(blocks)}"
    return Value(text=text, order=len(outliers.launches))


def _outlying_windows(pair: Outlying) -> Value:
    outliers = pair[1]
    return Value(text=f"{outliers.num_windows_out} of {outliers.num_windows}", order=outliers.num_windows_out)


OUTLIERS = TableOf[Outlying](
    name="outliers",
    caption="Launches and windows that stand out",
    columns=(
        *place_columns(lambda pair: pair[0]),
        Column("rate", lambda pair: pair[1].rate, unit="samples/s"),
        Column("launches out", _outlying_launches, numeric=False),
        Column("rate without them", lambda pair: pair[1].rate_without, unit="samples/s"),
        Column("windows out", _outlying_windows),
        Column(
            "longest",
            lambda pair: shown_number(pair[1].longest if pair[1].num_windows_out else None, "{:.2f}".format),
            unit="times the median",
        ),
        Column(
            "rate without them",
            lambda pair: pair[1].rate_without_windows if pair[1].num_windows_out else None,
            unit="samples/s",
        ),
    ),
    data=lambda pair: {
        **_setting(pair[0].family.system, pair[0].cell, pair[0].evidence),
        "samples_per_second": pair[1].rate,
        "num_launches": pair[1].num_launches,
        **outlier_columns(pair[1]),
    },
    legend=(
        'All numbers include these launches; "without them" shows their effect. A '
        "launch is compared with the others of its cell, after removing what its block did to all cells; a window "
        "with the others of its launch. Both: beyond 3.5 by the modified z-score, and by 2 % or more. "
        "docs/metrics.md has the rule, and how often it errs."
    ),
    tags=lambda pair: tags_of(pair[0].cell),
    strong=lambda pair: bool(pair[1].launches),
)


def outlier_table(rows: Iterable[ScalingRow]) -> Table:
    """One row per cell with an outlying launch or window."""
    return OUTLIERS.of(
        (row, row.outliers)
        for row in rows
        if row.outliers and (row.outliers.launches or row.outliers.num_windows_out)
    )


def _launch_plots(study: Measured) -> Iterator[Plot]:
    plot = launch_plot(study.launches, outlier_marks(scaling.FINDING.of(study)))
    if plot:
        yield plot


FINDINGS = (
    Finding(
        name="launches",
        title="Every launch",
        compute=lambda study: tuple(_launch_plots(study)),
        plots=lambda plots: plots,
    ),
    Finding(
        name="outliers",
        title="Launches and windows that stand out",
        compute=lambda study: scaling.FINDING.of(study),
        more=lambda rows: (outlier_table(rows),),
        under="launches",
    ),
    Finding(
        name="step_times",
        title="Step times",
        compute=lambda study: sorted(good_launches(study.launches), key=_order),
        table=STEP_TIMES,
        under="launches",
    ),
)
