"""Throughput over ranks, and efficiency relative to the same backend: the details of the efficiency above them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from dlscale.analysis.curves import Curve, curves_of, missing_from
from dlscale.analysis.declare import family_tags
from dlscale.analysis.families import Family, common_family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.curve_plots import (
    MOST_IN_A_COLUMN,
    Shown,
    against_backend,
    against_none,
    is_base,
    proportional,
    rank_axis,
    rate_axis,
    samples_text,
    says,
    series_of,
    throughput_of,
    without_point,
)
from dlscale.analysis.findings.efficiency import (
    BACKEND,
    EFFICIENCY,
    Studied,
    efficiency_figure,
    efficiency_plot,
    figure_of,
    is_scaled,
)
from dlscale.analysis.findings.predicted_points import PlacedPrediction, predicted_notes, predicted_series
from dlscale.analysis.findings.scaling import ScalingRow, base_text, rows_of
from dlscale.analysis.findings.small_print import family_figure, scaling_lines, span
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Figure, Guide, Plot
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.text import rate, training_title
from dlscale.analysis.variants import CURVE


def own_efficiency_plots(studied: Iterable[Studied]) -> list[Plot]:
    """Plots against the same backend, one per family that also has those against `none`."""
    plots = []
    for index, (family, every, _) in enumerate(studied):
        rows = [row for row in every if row.cell.backend != "none"]
        if is_scaled(rows, against_none) and is_scaled(rows, against_backend):
            own = efficiency_plot(family, rows, (), value=against_backend, base=BACKEND)
            plots.append(replace(own, name=f"own-{index}"))
    return plots


def throughput_plots(studied: Iterable[Studied]) -> list[Plot]:
    """One plot per family with a rate."""
    plots = []
    for index, (family, rows, points) in enumerate(studied):
        if curves := curves_of(rows, throughput_of):
            plot = _plot(family, rows, curves, points)
            plots.append(
                replace(plot, name=f"throughput-{index}", title=f"Throughput: {training_title(family)}")
            )
    return plots


def _plot(
    family: Family,
    rows: Sequence[ScalingRow],
    curves: Sequence[Curve],
    points: Sequence[PlacedPrediction],
    *,
    reference: ScalingRow | None = None,
) -> Plot:
    """The rates of curves, both axes logarithmic, with the ideal line through the base case."""
    placed: list[Shown] = [*(row for curve in curves for row in curve.rows), *points]
    base, x, guides = _base(rows), rank_axis(placed), []
    if base and base.throughput:
        guides.append(proportional(base.throughput.center / base.base_ranks, x))
    if reference and reference.throughput:
        label = f"1 rank, {reference.cell.cores_per_rank} cores"
        guides.append(Guide(label=label, y=reference.throughput.center))
    return Plot(
        name="throughput",
        title="",
        says=says("Throughput", rows, throughput_of, samples_text),
        x=x,
        y=rate_axis([*placed, *([reference] if reference else [])]),
        series=(
            *series_of(curves, throughput_of, say=samples_text, unit="launch"),
            *predicted_series(points, throughput_of),
        ),
        guides=tuple(guides),
        notes=(f"{family.constants}.", *without_point(rows, curves), *predicted_notes(points)),
        table="numbers",
        tags=family_tags(family),
    )


def _base(rows: Sequence[ScalingRow]) -> ScalingRow | None:
    """The only base case without communication; None where curves have base cases of their own."""
    bases = [row for row in rows if is_base(row)]
    return bases[0] if len({row.family for row in bases}) == 1 else None


def throughput_figure(
    family: Family,
    rows: Sequence[ScalingRow],
    provenance: Provenance,
    form: Form = SCREEN,
    predicted: Sequence[PlacedPrediction] = (),
) -> Figure | None:
    """Samples per second over ranks, and the whole-machine reference; None if no cell has a rate."""
    curves = curves_of(form.chosen(rows), throughput_of)
    if not curves:
        return None
    reference = next((row for row in rows if row.cell.control == "whole_machine" and row.throughput), None)
    shown = [row for curve in curves for row in curve.rows] + ([reference] if reference else [])
    points = [point for point in predicted if form.draws(point.record)]
    plot = _plot(family, rows, curves, points, reference=reference)
    return family_figure(
        family,
        rows,
        [row.cell for row in shown],
        provenance,
        name="throughput",
        brief="Throughput, median over launches; bars: order-statistic intervals.",
        words=_words(rows, curves, reference, form),
        panels=(plot,),
        lines=scaling_lines(shown, points),
        predicted=points,
        wide=len({series.look for series in plot.series}) > MOST_IN_A_COLUMN,
    )


def _words(
    rows: Sequence[ScalingRow], curves: Sequence[Curve], reference: ScalingRow | None, form: Form
) -> Iterator[str]:
    base = _base(rows)
    intervals = [row.throughput for curve in curves for row in curve.rows if row.throughput]
    levels = sorted({100 * interval.level for interval in intervals if interval.low is not None})
    bars = ", ".join(f"{level:.1f}" for level in levels)
    yield f"Median over n = {span([interval.n for interval in intervals])} launches, by the slowest rank's time."
    yield f"Bars: {bars} % order-statistic interval." if levels else "No bars: an interval needs 6 launches."
    if levels and any(interval.low is None for interval in intervals):
        yield "No bar: fewer than 6 launches."
    if base:
        yield f"Ideal: through the base case, none on {base_text(rows)}, {rate(base.throughput)} samples/s."
    elif any(map(is_base, rows)):
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


MAKERS = {"throughput": throughput_figure, "efficiency": efficiency_figure}


def _of_several_families(study: Measured, form: Form) -> Iterator[tuple[str, Figure]]:
    """Figures of all curves along axes that separate families, such as the batch."""
    if study.variants.factor != CURVE:
        return
    groups: dict[Family, list[ScalingRow]] = {}
    for family in study.families:
        own = [row for row in rows_of(scaling.FINDING.of(study), family) if row.cell.control == "train"]
        groups.setdefault(common_family(family), []).extend(own)
    for common, rows in groups.items():
        stem = f"{common.workload}-{common.preset}-{common.framework}-{common.scaling_mode}-curves"
        if len({row.family for row in rows}) < 2:
            continue
        for make in MAKERS.values():
            if figure := make(common, rows, study.provenance, form):
                yield f"{stem}-{figure.name}", figure


THROUGHPUT = Finding(
    name="throughput",
    title="Throughput",
    compute=lambda study: EFFICIENCY.of(study),
    plots=throughput_plots,
    under=EFFICIENCY.name,
    files=_of_several_families,
    figures={"throughput": lambda study, family, form: throughput_figure(*figure_of(study, family, form))},
)
OWN = Finding(
    name="own",
    title="Relative to the same backend",
    lead="What each backend loses by scaling alone: its fixed costs on the base's ranks are left out.",
    compute=lambda study: EFFICIENCY.of(study),
    plots=own_efficiency_plots,
)
FINDINGS = (THROUGHPUT, OWN)
