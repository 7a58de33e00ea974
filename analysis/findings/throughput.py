"""Throughput over ranks, and efficiency relative to the same backend: the details of the efficiency above them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlscale.analysis.curves import curves_of
from dlscale.analysis.declare import Guide, Plot, family_tags
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings.curve_plots import (
    IDEAL,
    Shown,
    against_backend,
    against_none,
    rank_axis,
    rate_axis,
    samples_text,
    says,
    series_of,
    throughput_of,
    without_point,
)
from dlscale.analysis.findings.predicted_points import PlacedPrediction, predicted_notes, predicted_series
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.findings.scaling_figures import family_throughput
from dlscale.analysis.findings.scaling_plots import (
    BACKEND,
    EFFICIENCY,
    Studied,
    efficiency_plot,
    is_scaled,
)
from dlscale.analysis.text import training_title


def own_efficiency_plots(studied: Iterable[Studied]) -> list[Plot]:
    """Plots against (b), one per family that also has (a)."""
    plots = []
    for index, (family, every, _) in enumerate(studied):
        rows = [row for row in every if row.cell.backend != "none"]
        if is_scaled(rows, against_none) and is_scaled(rows, against_backend):
            name = f"own-{index}"
            plots.append(
                efficiency_plot(name, family, rows, (), value=against_backend, base=BACKEND, guides=(IDEAL,))
            )
    return plots


def throughput_plots(studied: Iterable[Studied]) -> list[Plot]:
    """One plot per family with a rate, both axes logarithmic."""
    plots = []
    for index, (family, rows, points) in enumerate(studied):
        curves = curves_of(rows, throughput_of)
        if not curves:
            continue
        shown = [row for curve in curves for row in curve.rows]
        names = [curve.name for curve in curves]
        plots.append(
            Plot(
                name=f"throughput-{index}",
                title=training_title(family),
                says=says("Throughput", rows, throughput_of, samples_text),
                x=rank_axis([*shown, *points]),
                y=rate_axis([*shown, *points]),
                series=(
                    *series_of(curves, throughput_of, say=samples_text, unit="launch"),
                    *predicted_series(points, throughput_of, names),
                ),
                guides=_ideal_rate(shown, points),
                notes=(f"{family.constants}.", *without_point(rows, curves), *predicted_notes(points)),
                table="numbers",
                tags=family_tags(family),
            )
        )
    return plots


def _ideal_rate(rows: Sequence[ScalingRow], points: Sequence[PlacedPrediction]) -> tuple[Guide, ...]:
    base = next(
        (row for row in rows if (row.cell.backend, row.cell.num_ranks) == ("none", row.base_ranks)), None
    )
    if base is None or base.throughput is None:
        return ()
    every: list[Shown] = [*rows, *points]
    ranks = [row.cell.num_ranks for row in every]
    each = base.throughput.center / base.base_ranks
    return (Guide(label="ideal", points=tuple((float(n), n * each) for n in (min(ranks), max(ranks)))),)


THROUGHPUT = Finding(
    name="throughput",
    title="Throughput",
    compute=lambda study: EFFICIENCY.of(study),
    plots=throughput_plots,
    figures={"throughput": family_throughput},
)
OWN = Finding(
    name="own",
    title="Relative to the same backend",
    lead="What each backend loses by scaling alone: its fixed costs on the base's ranks are left out.",
    compute=lambda study: EFFICIENCY.of(study),
    plots=own_efficiency_plots,
)
FINDINGS = (THROUGHPUT, OWN)
