"""Throughput and efficiency over ranks, a plot per family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dlscale.analysis.family import Family
from dlscale.analysis.figures.curves import Value, curves_of
from dlscale.analysis.page.causes import Causes
from dlscale.analysis.page.plot_model import Axis, Guide, Plot, Tags
from dlscale.analysis.page.series import rank_axis, says, series_of, without_point
from dlscale.analysis.page.words import training_title
from dlscale.analysis.scaling import Row, ScalingTable
from dlscale.analysis.statistics import Interval
from dlscale.analysis.words import number, percent, rate

STEPS = (
    (12, (1.0, 2.0, 5.0)),
    (3, (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)),
    (0, tuple(n / 5 for n in range(5, 50))),
)
IDEAL = Guide(label="ideal", y=1.0)
NONE, BACKEND = "1 rank without a communication layer", "1 rank of the same backend"


def efficiency_plots(table: ScalingTable, causes: Causes) -> list[Plot]:
    """One per family that has an efficiency on more than 1 rank: against (a), or (b) where there is no (a)."""
    plots = []
    for index, family in enumerate(table.families):
        rows = table.of(family)
        value, base = (_none, NONE) if _scaled(rows, _none) else (_backend, BACKEND)
        guides = (IDEAL, *causes.bounds.get(family, ()))
        if _scaled(rows, value):
            plot = _efficiency(f"efficiency-{index}", family, rows, value=value, base=base, guides=guides)
            note = causes.bound_notes.get(family)
            plots.append(replace(plot, notes=(*plot.notes, note)) if note else plot)
    return plots


def own_efficiency_plots(table: ScalingTable) -> list[Plot]:
    """Against (b), one per family that has (a) as well."""
    plots = []
    for index, family in enumerate(table.families):
        rows = [row for row in table.of(family) if row.cell.backend != "none"]
        if _scaled(rows, _none) and _scaled(rows, _backend):
            plots.append(
                _efficiency(f"own-{index}", family, rows, value=_backend, base=BACKEND, guides=(IDEAL,))
            )
    return plots


def throughput_plots(table: ScalingTable) -> list[Plot]:
    """One per family with a rate, both axes logarithmic."""
    plots = []
    for index, family in enumerate(table.families):
        rows = table.of(family)
        curves = curves_of(rows, _rate)
        if not curves:
            continue
        shown = [row for curve in curves for row in curve.rows]
        plots.append(
            Plot(
                name=f"throughput-{index}",
                title=training_title(family),
                says=says("Throughput", rows, _rate, _samples),
                x=rank_axis(shown),
                y=_rate_axis(shown),
                series=series_of(curves, _rate, say=_samples, unit="launch"),
                guides=_ideal_rate(shown),
                notes=(f"{family.constants}.", *without_point(rows, curves)),
                table="numbers",
                tags=_tags(family),
            )
        )
    return plots


def _efficiency(
    name: str, family: Family, rows: Sequence[Row], *, value: Value, base: str, guides: tuple[Guide, ...]
) -> Plot:
    curves = curves_of(rows, value)
    shown = [row for curve in curves for row in curve.rows]
    tops = [one.center if one.high is None else one.high for row in shown if (one := value(row))]
    return Plot(
        name=name,
        title=training_title(family),
        says=says("Efficiency", rows, value, percent),
        x=rank_axis(shown),
        y=Axis(title="efficiency [%]", kind="percent", low=0, high=max(1.1, 1.05 * max(tops))),
        series=series_of(curves, value, say=percent, unit="block"),
        guides=guides,
        notes=(f"{family.constants}; against {base}.", *without_point(rows, curves)),
        table="numbers",
        tags=_tags(family),
    )


def _scaled(rows: Sequence[Row], value: Value) -> bool:
    return any(row.cell.num_ranks > 1 and value(row) for row in rows)


def _rate_axis(rows: Sequence[Row]) -> Axis:
    """Logarithmic, with plain numbers: steps of 1, 2 and 5, and more of them where it spans little."""
    intervals = [row.throughput for row in rows if row.throughput]
    low = min(one.center if one.low is None else one.low for one in intervals) / 1.2
    high = max(one.center if one.high is None else one.high for one in intervals) * 1.2
    steps = next(steps for span, steps in STEPS if high / low > span)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    places = [place for decade in decades for step in steps if low <= (place := step * 10.0**decade) <= high]
    ticks = tuple((place, number(float(f"{place:.2g}"))) for place in places)
    return Axis(title="throughput [samples/s]", kind="log", ticks=ticks, low=low, high=high)


def _ideal_rate(rows: Sequence[Row]) -> tuple[Guide, ...]:
    base = next((row for row in rows if (row.cell.backend, row.cell.num_ranks) == ("none", 1)), None)
    if base is None or base.throughput is None:
        return ()
    ranks = [row.cell.num_ranks for row in rows]
    each = base.throughput.center
    return (Guide(label="ideal", points=tuple((float(n), n * each) for n in (min(ranks), max(ranks)))),)


def _tags(family: Family) -> Tags:
    return Tags(workload=family.workload, framework=family.framework)


def _none(row: Row) -> Interval | None:
    return row.efficiency_none


def _backend(row: Row) -> Interval | None:
    return row.efficiency_backend


def _rate(row: Row) -> Interval | None:
    return row.throughput


def _samples(interval: Interval) -> str:
    return f"{rate(interval)} samples/s"
