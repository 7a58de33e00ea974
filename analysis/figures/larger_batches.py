"""Larger batches: the samples to the target at each global batch, and the time over ranks that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, ScalarFormatter

from dlscale.analysis.curves import Curve, curves_of, limits
from dlscale.analysis.families import Family
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    GREY,
    RIM,
    SINGLE_COLUMN_INCHES,
    curve_handles,
    draw_curves,
    evidence_handles,
    looks_of,
    marker_style,
    rank_axis,
    whiskers,
)
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.findings.noise_scale import NoiseScale, arrived, laws, noise_scales, scale_text
from dlscale.analysis.findings.predicted_solutions import Prediction, predictions
from dlscale.analysis.findings.solutions import TimeToSolution, goal_text
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.measured import WeakScaling
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import backend_name, interval_columns

LAWS: dict[str, dict[str, Any]] = {
    "gradients": {"color": RIM, "linewidth": 0.9, "zorder": 2, "label": "by gradient noise"},
    "samples": {
        "color": GREY,
        "linewidth": 0.9,
        "linestyle": (0, (4, 2)),
        "zorder": 2,
        "label": "fitted to samples",
    },
}
NUM_PLACES = 100  # along a law


def draw(
    family: Family,
    rows: Sequence[TimeToSolution],
    weak: WeakScaling | None,
    provenance: Provenance,
    form: Form = SCREEN,
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure of a family and its left part in rows; None where nothing says how samples grow with the batch.

    Left the measured samples to the target over the global batch, and E(B) = E_min (1 + B / B_noise); right the times
    of training that follow, over ranks, none of them measured.
    """
    own = [row for row in arrived(rows) if not form.backends or row.cell.backend in form.backends]
    noises = noise_scales(rows)
    if not own or not any(map(laws, noises)):
        return None
    found = [
        prediction
        for prediction in predictions(noises, weak)
        if not form.backends or prediction.cell.backend in form.backends
    ]
    measured = curves_of(own, _samples)
    predicted = [_curve(prediction) for prediction in found]
    figure, axes = figure_with_axes(
        form=form,
        width=DOUBLE_COLUMN_INCHES if found else SINGLE_COLUMN_INCHES,
        num_panels=2 if found else 1,
        title=f"larger batches, to {goal_text(own[0].target)}: {family.title}",
        warning="",
        subtitle=family.constants,
        handles=[
            *curve_handles(measured),
            *(
                Line2D([], [], **style)
                for name, style in LAWS.items()
                if any(name in laws(n) for n in noises)
            ),
            *evidence_handles([*measured, *predicted], form),
        ],
        small_print=_small_print(noises, found, provenance),
        shared=False,
    )
    _draw_samples(axes[0], own, measured, noises)
    if found:
        _draw_predicted(axes[1], found, predicted, among=[*measured, *predicted], form=form)
    return figure, samples_rows(noises)


def samples_rows(noises: Sequence[NoiseScale]) -> list[dict[str, Any]]:
    """The samples to the target of every cell that has a median, and what each law makes of its batch."""
    return [
        {
            "workload": row.cell.workload,
            "preset": row.cell.preset,
            "framework": row.cell.framework,
            "backend": row.cell.backend,
            "num_ranks": row.cell.num_ranks,
            "global_batch": row.cell.global_batch,
            "evidence": row.evidence,
            **interval_columns("samples", row.samples),
            **{
                f"samples_by_{name}": float(law.samples(row.cell.global_batch)) if law else None
                for name in LAWS
                for law in (laws(noise).get(name),)
            },
        }
        for noise in noises
        for row in arrived(noise.rows)
    ]


def _samples(row: TimeToSolution) -> Interval | None:
    return row.samples


def _curve(prediction: Prediction) -> Curve:
    cell = prediction.cell
    return Curve(name=backend_name(cell), backend=cell.backend, evidence="simulated", rows=prediction.points)


def _draw_samples(
    axes: Axes, rows: Sequence[TimeToSolution], curves: Sequence[Curve], noises: Sequence[NoiseScale]
) -> None:
    batches = sorted({row.cell.global_batch for row in rows})
    along = np.geomspace(batches[0] / 1.5, batches[-1] * 1.5, NUM_PLACES)
    for noise in noises:
        for name, law in laws(noise).items():
            axes.plot(along, [float(law.samples(batch)) for batch in along], **LAWS[name])
    looks = looks_of(curves)
    for place, curve in enumerate(curves):
        shift = 1.05 ** (place - (len(curves) - 1) / 2)  # cells of one batch beside each other
        for row in curve.rows:
            samples = row.samples
            axes.errorbar(
                row.cell.global_batch * shift,
                samples.center,
                yerr=np.transpose([whiskers(samples)]),
                ecolor=RIM,
                elinewidth=0.7,
                capsize=1.8,
                barsabove=True,
                linestyle="",
                zorder=3,
                **marker_style(looks[curve.name], curve.evidence),
            )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(batches))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("global batch [samples]")
    axes.set_ylabel("samples to the target")
    axes.set_ylim(bottom=0)


def _draw_predicted(
    axes: Axes, found: Sequence[Prediction], curves: Sequence[Curve], *, among: Sequence[Curve], form: Form
) -> None:
    points = [point for prediction in found for point in prediction.points]
    rank_axis(axes, points)
    draw_curves(axes, curves, lambda point: point.seconds, among=among, form=form)
    axes.set_ylim(0, 1.08 * limits([point.seconds for point in points])[1])
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.set_ylabel("predicted time of training [s]")


def _small_print(
    noises: Sequence[NoiseScale], found: Sequence[Prediction], provenance: Provenance
) -> list[str]:
    scales = [
        f"{name} {scale_text(scale)}"
        for noise in noises
        for name, scale in (("from gradients", noise.scale), ("from samples", noise.critical))
        if scale
    ]
    text = (
        "Left: median samples to the target with order-statistic intervals, measured, and E = E_min (1 + B / B_noise), "
        f"fitted to them with B_noise {'; '.join(scales) or 'without bound'}."
    )
    if found:
        sources = "; ".join(sorted({prediction.source for prediction in found}))
        text += (
            f" Right: E over {sources}; predicted, without launch and evaluations, with intervals bootstrapped over "
            "seeds."
        )
    commits = ", ".join(commit[:12] for commit in provenance.commits)
    where = f"Study {', '.join(provenance.studies)}; commit {commits}; data {provenance.data_hash[:12]}."
    return [text, where]
