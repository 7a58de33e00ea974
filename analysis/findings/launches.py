"""Every launch: its rate over the time of the study, and step times of each cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dlscale.analysis.declare import Column, TableOf, Tags, tags_of
from dlscale.analysis.finding import PLACE_COLUMNS, Finding
from dlscale.analysis.launches import CellLaunches, MeasuredCase, good_launches
from dlscale.analysis.measured import Measured
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


def launch_plot(measured: Iterable[CellLaunches]) -> Plot | None:
    """Each launch's rate relative to its cell's median, over time; None for fewer than 2 launches.

    Changes common to all cells come from the machine, and cancel in paired ratios.
    """
    points: dict[tuple[str, str, Tags], list[Point]] = {}
    for launches in by_start(measured):
        cell = launches.cell
        key = backend_name(cell), launches.evidence, tags_of(cell)
        middle = float(np.median([case.samples_per_second for case in launches.cases]))
        for case in launches.cases:
            points.setdefault(key, []).append(_point(case, case.samples_per_second / middle))
    if sum(map(len, points.values())) < 2:
        return None
    series = tuple(
        Series(name=name, look=name, evidence=evidence, points=tuple(curve_points), tags=tags)
        for (name, evidence, tags), curve_points in sorted(
            points.items(), key=lambda item: _place_of(*item[0])
        )
    )
    low, high = np.percentile([point.y for curve in series for point in curve.points], [5, 95])
    return Plot(
        name="every-launch",
        title="Samples per second over the median of the cell",
        says=(
            f"{sum(len(curve.points) for curve in series)} cases, each relative to the median of its cell: nine of "
            f"ten lie between {100 * (low - 1):+.1f} % and {100 * (high - 1):+.1f} %."
        ),
        x=Axis(title="begin of the launch (UTC)", kind="time"),
        y=Axis(title="of the median [%]", kind="percent"),
        series=series,
        guides=(Guide(label="median", y=1.0),),
        table="steps",
    )


def _place_of(name: str, evidence: str, tags: Tags) -> tuple[object, ...]:
    return name != "none", name, evidence, tags.workload, tags.framework


def _point(case: MeasuredCase, ratio: float) -> Point:
    cell = case.cell
    what = [workload_title(cell.workload), cell.framework, CONTROL_NAMES[cell.control]]
    return Point(
        x=1000 * start_time(case.record.started_at).timestamp(),
        y=ratio,
        lines=(
            f"{backend_name(cell)}, {plural(cell.num_ranks, 'rank')}, block {case.block[1]}",
            ", ".join(filter(None, what)),
            f"{number(case.samples_per_second)} samples/s, {100 * (ratio - 1):+.1f} % (1 launch)",
        ),
    )


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


def _launch_plots(study: Measured) -> Iterator[Plot]:
    plot = launch_plot(study.launches)
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
        name="step_times",
        title="Step times",
        compute=lambda study: sorted(good_launches(study.launches), key=_order),
        table=STEP_TIMES,
        under="launches",
    ),
)
