"""The distribution of step times: the share of windows whose steps took at most a given time, one curve per backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.declare import tags_of
from dlscale.analysis.families import Family, on_most_ranks
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.curve_plots import MOST_IN_A_COLUMN
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.small_print import bars_text, family_figure, span
from dlscale.analysis.form import Form
from dlscale.analysis.launches import CellLaunches, good_launches
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Axis, Figure, Guide, Plot, Point, Series
from dlscale.analysis.records import Seconds, method_columns, settings_text
from dlscale.analysis.text import backend_name, plural

MAX_POINTS = 1000  # per curve; more windows are thinned evenly, keeping the first and the last
_WIDE = 4  # the axis is logarithmic above this ratio of slowest to fastest window
SHARES = tuple((share / 100, str(share)) for share in (0, 25, 50, 75, 100))


def distribution_figure(study: Measured, family: Family, form: Form) -> Figure | None:
    """The curves on the family's largest number of ranks, and their medians below them; None without any."""
    trained = good_launches(study.launches, controls={"train"})
    own = [launches for launches in trained if launches.family == family and form.draws(launches.cell)]
    shown = sorted(on_most_ranks(own), key=_order)
    if not shown:
        return None
    rows = rows_of(scaling.FINDING.of(study), family)
    lines = [row for launches in shown for row in _rows(launches)]
    return family_figure(
        family,
        rows,
        [launches.cell for launches in shown],
        study.provenance,
        name="ecdf",
        brief="Distribution of step times; marks below: medians of launches with order-statistic intervals.",
        subtitle=f"{plural(shown[0].cell.num_ranks, 'rank')}; {family.constants}",
        words=_words(shown, own),
        panels=(_plot(shown),),
        lines=lines,
        wide=len({backend_name(launches.cell) for launches in shown}) > MOST_IN_A_COLUMN,
    )


def _plot(shown: Sequence[CellLaunches]) -> Plot:
    pooled = [ascending(launches) for launches in shown]
    slowest = max(float(seconds[-1]) for seconds in pooled)
    unit, factor = ("ms", 1e3) if slowest < 1 else ("s", 1.0)
    pitch = min(0.07, 0.42 / len(shown))  # between two medians, in a strip of their own below the curves
    series = [
        each
        for place, launches in enumerate(shown, start=1)
        for each in _curve(launches, factor, height=-pitch * place)
    ]
    return Plot(
        name="ecdf",
        title="",
        says="",
        x=_time_axis(factor * min(float(seconds[0]) for seconds in pooled), factor * slowest, unit),
        y=Axis(
            title="windows that took no longer [%]",
            kind="percent",
            ticks=SHARES,
            low=-pitch * (len(shown) + 0.8),
            high=1.03,
        ),
        series=tuple(series),
        guides=(Guide(label="", y=0.0),),
    )


def _curve(launches: CellLaunches, factor: float, *, height: float) -> Iterator[Series]:
    name, tags = backend_name(launches.cell), tags_of(launches.cell)
    seconds, shares = points(ascending(launches))
    # Start at 0, so that the first step is as high as all others.
    stairs = [(seconds[0], 0.0), *zip(seconds.tolist(), shares.tolist(), strict=True)]
    yield Series(
        name=name,
        look=name,
        evidence=launches.evidence,
        points=tuple(Point(x=factor * second, y=share) for second, share in stairs),
        tags=tags,
        joined=True,
        stairs=True,
    )
    typical = launches.step_seconds.times(factor)
    median = Point(x=typical.center, y=height, left=typical.low, right=typical.high)
    yield Series(name="median", look=name, evidence=launches.evidence, points=(median,), tags=tags)


def ascending(launches: CellLaunches) -> Seconds:
    """Seconds per step of the windows of all launches together."""
    return np.sort(np.concatenate([case.seconds for case in launches.cases]))


def points(seconds: Seconds) -> tuple[Seconds, NDArray[np.float64]]:
    """Ascending seconds per step, and the share of windows that took at most as long; at most MAX_POINTS of them."""
    count = len(seconds)
    chosen = np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).round().astype(int))
    return seconds[chosen], (chosen + 1) / count


def _time_axis(low: float, high: float, unit: str) -> Axis:
    title = f"time per step [{unit}]"
    if high / low > _WIDE:
        return Axis(title=title, kind="log", low=low / 1.08, high=high * 1.08)
    margin = 0.04 * (high - low) or 0.5 * high
    return Axis(title=title, low=low - margin, high=high + margin)


def _order(launches: CellLaunches) -> tuple[object, ...]:
    cell = launches.cell
    return cell.backend != "none", cell.method, settings_text(cell.options), cell.num_servers


def _rows(launches: CellLaunches) -> list[dict[str, Any]]:
    pooled = ascending(launches)
    seconds, shares = points(pooled)
    common = {
        "system": launches.family.system,
        **launches.cell.model_dump(exclude={"control"}),
        **method_columns(launches.cell),
        "evidence": launches.evidence,
        "num_launches": len(launches.cases),
        "num_windows": len(pooled),
    }
    return [
        {**common, "seconds_per_step": second, "share_of_windows": share}
        for second, share in zip(seconds.tolist(), shares.tolist(), strict=True)
    ]


def _words(shown: Sequence[CellLaunches], own: Sequence[CellLaunches]) -> Iterator[str]:
    counts = [sum(len(case.seconds) for case in launches.cases) for launches in shown]
    names = [backend_name(launches.cell) for launches in shown]
    windows = "; ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))
    yield (
        "The slowest rank's time per step of every window after the warm-up, "
        f"n = {span([len(launches.cases) for launches in shown])} launches pooled; windows: {windows}. Marks below: "
        "median over launches of each one's median;"
    )
    yield bars_text([launches.step_seconds for launches in shown])
    if max(counts) > MAX_POINTS:
        yield f"Curves are drawn through {MAX_POINTS} of their windows."
    if left_out := sorted({backend_name(launches.cell) for launches in own} - {*names}):
        yield f"Not on as many ranks: {', '.join(left_out)}."


FINDINGS = (
    Finding(
        name="step_distribution",
        title="Distribution of step times",
        compute=lambda study: good_launches(study.launches, controls={"train"}),
        figures={"ecdf": distribution_figure},
    ),
)
