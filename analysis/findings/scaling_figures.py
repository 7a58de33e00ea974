"""Throughput and efficiency over ranks as figures in files, with the rows of their CSV and what is predicted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dlscale.analysis.curves import Curve, Value, curves_of, missing_from
from dlscale.analysis.declare import Axis, Figure, Guide, Plot
from dlscale.analysis.families import Family
from dlscale.analysis.findings import predicted_points, scaling
from dlscale.analysis.findings.bounds import loosest_bounds
from dlscale.analysis.findings.curve_plots import (
    IDEAL,
    MOST_IN_A_COLUMN,
    Say,
    against_backend,
    against_none,
    is_base,
    proportional,
    rank_axis,
    rate_axis,
    samples_text,
    series_of,
    throughput_of,
)
from dlscale.analysis.findings.predicted_points import (
    PlacedPrediction,
    doubts_of,
    origin_sentence,
    predicted_series,
    to_scaling_columns,
)
from dlscale.analysis.findings.scaling import ScalingRow, base_text, rows_of, scaling_row
from dlscale.analysis.findings.small_print import origin, parity, span, warning
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import backend_name, percent, rate

Panel = tuple[str, Value]
PANELS: tuple[Panel, ...] = (
    ("(a) base case: {}, no communication layer", against_none),
    ("(b) base case: {} of the same backend", against_backend),
)
KINDS = ("wire", "memory", "loader")  # of bounds


def throughput_figure(
    family: Family,
    rows: Sequence[ScalingRow],
    provenance: Provenance,
    form: Form = SCREEN,
    predicted: Sequence[PlacedPrediction] = (),
) -> Figure | None:
    """Samples per second over ranks, with the ideal line through the base case; None if no cell has a rate."""
    curves = curves_of(form.chosen(rows), throughput_of)
    if not curves:
        return None
    bases = [row for row in rows if is_base(row)]
    base = bases[0] if len({row.family for row in bases}) == 1 else None
    reference = next((row for row in rows if row.cell.control == "whole_machine" and row.throughput), None)
    shown = [row for curve in curves for row in curve.rows] + ([reference] if reference else [])
    points = drawn_points(predicted, form)
    placed = [*(row for curve in curves for row in curve.rows), *points]
    guides = []
    if base and base.throughput:
        guides.append(proportional(base.throughput.center / base.base_ranks, rank_axis(placed)))
    if reference and reference.throughput:
        label = f"1 rank, {reference.cell.cores_per_rank} cores"
        guides.append(Guide(label=label, y=reference.throughput.center))
    plot = Plot(
        name="throughput",
        title="",
        says="",
        x=rank_axis(placed),
        y=rate_axis([*shown, *points]),
        series=_series(curves, points, throughput_of, samples_text, "launch"),
        guides=tuple(guides),
    )
    words = _throughput_words(rows, curves, bases, base, reference, form)
    return Figure(
        name="throughput",
        title=family.title,
        warning=_with_doubts(warning(rows), points),
        subtitle=family.constants,
        small_print=_small_print(words, rows, shown, points, provenance),
        panels=(plot,),
        rows=csv_rows(shown, points),
        wide=len({series.look for series in plot.series}) > MOST_IN_A_COLUMN,
    )


def efficiency_figure(
    family: Family,
    rows: Sequence[ScalingRow],
    provenance: Provenance,
    form: Form = SCREEN,
    predicted: Sequence[PlacedPrediction] = (),
) -> Figure | None:
    """Efficiency over ranks against both base cases, with bounds and predictions in (a).

    None if only base cases have an efficiency.
    """
    chosen = form.chosen(rows)
    panels = [curves_of(chosen, value) for _, value in PANELS]
    shown = list({id(row): row for curves in panels for curve in curves for row in curve.rows}.values())
    if all(row.cell.num_ranks == row.base_ranks for row in shown):
        return None
    # One order for both panels, so that a backend has the same place in both.
    names = [
        curve.name for curve in curves_of(chosen, lambda row: row.efficiency_none or row.efficiency_backend)
    ]
    points = drawn_points(predicted, form)
    bounds = dict(
        loosest_bounds(
            [
                (row.cell.num_ranks, bound)
                for row in shown
                if row.cell.backend != "none"
                for bound in row.limits
            ]
        )
    )
    tops = [
        interval.center if interval.high is None else interval.high
        for _, value in PANELS
        for row in (*shown, *(points if value is against_none else ()))
        if (interval := value(row))
    ]
    x, plots = rank_axis([*shown, *points]), []
    for (title, value), curves in zip(PANELS, panels, strict=True):
        own = [point for point in points if value(point)] if value is against_none else []
        # In print the caption explains the letter: one column has no room for the rest.
        plots.append(
            Plot(
                name=f"efficiency-{title[1]}",
                title=title[:3] if form.printed else title.format(base_text(rows)),
                says="base case not measured",
                x=x,
                y=Axis(
                    title="scaling efficiency [%]", kind="percent", low=0, high=max(1.1, 1.05 * max(tops))
                ),
                series=_series(curves, own, value, percent, "block", names),
                guides=(IDEAL, *(bound_guides(bounds) if value is against_none else ())),
            )
        )
    words = _efficiency_words(rows, shown, panels, bounds_text(bounds), form)
    return Figure(
        name="efficiency",
        title=family.title,
        warning=_with_doubts(warning(rows), points),
        subtitle=family.constants,
        small_print=_small_print(words, rows, shown, points, provenance),
        panels=tuple(plots),
        rows=csv_rows(shown, points),
        shared=True,
    )


MAKERS = {"throughput": throughput_figure, "efficiency": efficiency_figure}


def family_throughput(study: Measured, family: Family, form: Form) -> Figure | None:
    """The figure of a family of a study with its predictions."""
    return throughput_figure(*_of_family(study, family), form, _predicted(study, family))


def family_efficiency(study: Measured, family: Family, form: Form) -> Figure | None:
    """The figure of a family of a study with its predictions."""
    return efficiency_figure(*_of_family(study, family), form, _predicted(study, family))


def _of_family(study: Measured, family: Family) -> tuple[Family, Sequence[ScalingRow], Provenance]:
    return family, rows_of(scaling.FINDING.of(study), family), study.provenance


def _predicted(study: Measured, family: Family) -> list[PlacedPrediction]:
    return [point for point in predicted_points.FINDING.of(study) if point.family == family]


def csv_rows(rows: Iterable[ScalingRow], predicted: Iterable[PlacedPrediction] = ()) -> list[dict[str, Any]]:
    """The rows of `--json`, their notes joined by "; ", and behind them what is predicted, in the same columns."""
    lines = [{**row, "notes": "; ".join(row["notes"])} for row in map(scaling_row, rows)]
    unknown = dict.fromkeys(lines[0]) if lines else {}
    return [*lines, *(unknown | to_scaling_columns(point) for point in predicted)]


def drawn_points(points: Iterable[PlacedPrediction], form: Form) -> list[PlacedPrediction]:
    """The points over the backends to draw."""
    return [point for point in points if not form.backends or point.record.backend in form.backends]


def _series(
    curves: Sequence[Curve],
    points: Sequence[PlacedPrediction],
    value: Value,
    say: Say,
    unit: str,
    among: Sequence[str] = (),
) -> tuple[Any, ...]:
    names = list(dict.fromkeys((*among, *(curve.name for curve in curves))))
    measured = series_of(curves, value, say=say, unit=unit, among=among)
    return (*measured, *predicted_series(points, value, names))


def bound_guides(points: dict[str, list[tuple[int, float]]]) -> Iterator[Guide]:
    """The bounds that are below 1 somewhere, in a fixed order."""
    for kind in KINDS:
        if any(height < 1 for _, height in points.get(kind, ())):
            yield Guide(
                label=f"bound: {kind}", points=tuple((float(n), y) for n, y in points[kind]), bound=True
            )


def bounds_text(points: dict[str, list[tuple[int, float]]]) -> str:
    """Which bounds are drawn, which never bind, and which are unknown."""
    drawn = [guide.label.removeprefix("bound: ") for guide in bound_guides(points)]
    known = [kind for kind in KINDS if points.get(kind)]
    free = [kind for kind in known if kind not in drawn]
    unknown = [kind for kind in KINDS if kind not in known]
    words = [
        f"Bounds that no point over a backend can exceed, relative to (a): {', '.join(drawn)}."
        if drawn
        else "",
        f"Bound by {', '.join(free)}: 100 %." if free else "",
        f"Bound not known: {', '.join(unknown)}." if unknown else "",
    ]
    return " ".join(filter(None, words))


def _throughput_words(
    rows: Sequence[ScalingRow],
    curves: Sequence[Curve],
    bases: Sequence[ScalingRow],
    base: ScalingRow | None,
    reference: ScalingRow | None,
    form: Form,
) -> Iterator[str]:
    intervals = [row.throughput for curve in curves for row in curve.rows if row.throughput]
    levels = sorted({100 * interval.level for interval in intervals if interval.low is not None})
    bars = ", ".join(f"{level:.1f}" for level in levels)
    yield f"Median over n = {span([interval.n for interval in intervals])} launches, by the slowest rank's time."
    yield f"Bars: {bars} % order-statistic interval." if levels else "No bars: an interval needs 6 launches."
    if levels and any(interval.low is None for interval in intervals):
        yield "No bar: fewer than 6 launches."
    if base:
        mark = "" if form.printed else "; its level is marked behind the points, which are moved aside"
        yield f"Ideal: through the base case, none on {base_text(rows)}, {rate(base.throughput)} samples/s{mark}."
    elif bases:
        yield "No ideal line: curves have base cases of their own."
    else:
        yield f"No ideal line: the base case, none on {base_text(rows)}, is missing."
    if reference:
        yield (
            f"Dotted: whole-machine reference, 1 rank on {reference.cell.cores_per_rank} cores, "
            f"{rate(reference.throughput)} samples/s; not a base case."
        )
    if missing := missing_from(form.chosen(rows), curves):
        yield f"No point: {', '.join(missing)}."


def _efficiency_words(
    rows: Sequence[ScalingRow],
    shown: Sequence[ScalingRow],
    panels: Sequence[Sequence[Curve]],
    bounds: str,
    form: Form,
) -> Iterator[str]:
    base = shown[0].base_ranks
    ratios: list[Interval] = [
        interval
        for row in shown
        if row.cell.num_ranks != base
        for _, value in PANELS
        if (interval := value(row)) is not None
    ]
    yield (
        f"Efficiency (T(p)/p) / (T({base})/{base}) with T in samples/s; geometric mean over "
        f"n = {span([interval.n for interval in ratios])} blocks of launches, "
        f"bars: {100 * LEVEL:.0f} % t interval of the paired log ratios."
    )
    if form.printed:
        yield from (f"{title.format(base_text(rows))}." for title, _ in PANELS)
    if any("unpaired" in interval.method for interval in ratios):
        yield "Points without a common block with their base case are unpaired (see the CSV)."
    yield bounds
    if any(interval.low is None for interval in ratios):
        yield "No bar: too few blocks."
    bases = [
        f"{backend_name(row.cell)} {rate(row.throughput)}"
        for row in rows
        if row.cell.control == "train" and row.cell.num_ranks == base and row.throughput
    ]
    if bases:
        yield f"Base cases, {base_text(rows)}, in samples/s: {'; '.join(bases)}."
    for name, curves in zip("ab", panels, strict=True):
        if missing := missing_from(form.chosen(rows), curves):
            yield f"No point in ({name}): {', '.join(missing)}."


def _small_print(
    words: Iterable[str],
    rows: Sequence[ScalingRow],
    shown: Sequence[ScalingRow],
    points: Sequence[PlacedPrediction],
    provenance: Provenance,
) -> tuple[str, ...]:
    source = origin_sentence(points)
    return (" ".join(words), *([source] if source else []), *parity(rows), origin(shown, provenance))


def _with_doubts(text: str, points: Sequence[PlacedPrediction]) -> str:
    """The figure's warning, and why its predictions are not to be trusted."""
    return "; ".join(filter(None, (text, doubts_of(points))))
