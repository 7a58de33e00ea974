"""Ways of training compared: the time to solution of each, and the samples and the speed that it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from dlscale.analysis.curves import curves_of, limits
from dlscale.analysis.families import Family, on_most_ranks
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    GREY,
    RIM,
    evidence_handles,
    looks_of,
    marker_style,
    whiskers,
)
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.findings.small_print import solution_origin
from dlscale.analysis.findings.solution_table import to_solution_row
from dlscale.analysis.findings.solutions import TimeToSolution, fastest_first, goal_text, tuned_text
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import backend_name

EQUAL_TIME: dict[str, Any] = {"color": GREY, "linewidth": 0.7, "linestyle": (0, (1, 1.5)), "zorder": 1}
POINT: dict[str, Any] = {
    "ecolor": RIM,
    "elinewidth": 0.7,
    "capsize": 1.8,
    "barsabove": True,
    "linestyle": "",
    "zorder": 3,
}


def draw(
    family: Family, rows: Sequence[TimeToSolution], provenance: Provenance, form: Form = SCREEN
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure of a family on the most ranks, and the rows behind it; None where ways of training are not compared.

    Left the median time of each, the soonest at the top; right samples against samples/s, whose ratio is the time of
    the training: it is the same along each line.
    """
    own = [row for row in rows if row.reference and (not form.backends or row.cell.backend in form.backends)]
    own = fastest_first(on_most_ranks(own))
    if len(own) < 2:
        return None
    curves = curves_of(own, _presence)
    looks = looks_of(curves)
    figure, axes = figure_with_axes(
        form=form,
        width=DOUBLE_COLUMN_INCHES,
        num_panels=2,
        title=f"time to {goal_text(own[0].target)} on {own[0].cell.num_ranks} ranks: {family.title}",
        warning="",
        subtitle=family.constants,
        handles=[
            Line2D([], [], label="equal time of training", **EQUAL_TIME),
            *evidence_handles(curves, form),
        ],
        small_print=_small_print(own, provenance),
        shared=False,
    )
    _draw_times(axes[0], own, looks)
    _draw_product(axes[1], own, looks)
    return figure, [to_solution_row(row) for row in own]


def _presence(row: TimeToSolution) -> Interval:
    """Every cell has a place, also one whose median is not known."""
    return row.share


def _draw_times(axes: Axes, rows: Sequence[TimeToSolution], looks: Any) -> None:
    for place, row in enumerate(rows):
        if row.seconds:
            style = marker_style(looks[backend_name(row.cell)], row.evidence)
            axes.errorbar(
                row.seconds.center, place, xerr=np.transpose([whiskers(row.seconds)]), **POINT, **style
            )
        if row.num_reached < len(row.trainings):
            # An interval without an upper end has no whisker there: this says why.
            text = f"{row.num_reached} of {len(row.trainings)} reached it"
            at = row.seconds.center if row.seconds else 0
            axes.annotate(
                text, (at, place), xytext=(6, 0), textcoords="offset points", fontsize=6, va="center"
            )
    axes.set_yticks(
        range(len(rows)),
        [f"{backend_name(row.cell)}  {place}" for place, row in enumerate(rows, start=1)],
        fontsize=6,
    )
    axes.set_ylim(len(rows) - 0.5, -0.5)
    shown = [row.seconds for row in rows if row.seconds]
    axes.set_xlim(0, 1.08 * limits(shown)[1] if shown else 1)
    axes.set_xlabel("time to solution [s]")


def _draw_product(axes: Axes, rows: Sequence[TimeToSolution], looks: Any) -> None:
    known = [(row, row.samples, row.samples_per_second) for row in rows]
    drawn = [(row, samples, speed) for row, samples, speed in known if samples and speed]
    if not drawn:
        axes.set_axis_off()
        return
    fastest = 1.12 * limits([speed for _, _, speed in drawn])[1]
    for row, samples, speed in drawn:
        axes.plot([0, fastest], [0, fastest * samples.center / speed.center], **EQUAL_TIME)
        axes.errorbar(
            speed.center,
            samples.center,
            xerr=np.transpose([whiskers(speed)]),
            yerr=np.transpose([whiskers(samples)]),
            **POINT,
            **marker_style(looks[backend_name(row.cell)], row.evidence),
        )
        axes.annotate(
            str(rows.index(row) + 1),
            (speed.center, samples.center),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=7,
            zorder=4,
        )
    axes.set_xlim(0, fastest)
    axes.set_ylim(0, 1.12 * limits([samples for _, samples, _ in drawn])[1])
    axes.set_xlabel("samples/s of training")
    axes.set_ylabel("samples to the target")


def _small_print(rows: Sequence[TimeToSolution], provenance: Provenance) -> list[str]:
    ended = sum(len(row.trainings) - row.num_reached for row in rows)
    tuned = ", ".join(dict.fromkeys(tuned_text(row.target) for row in rows))
    text = (
        "Medians over trainings with order-statistic intervals; one that ended short of the target counts as longer "
        f"than all others ({ended} did). Left: from the launch, gates left out. Right: a training takes samples "
        f"over samples/s, equal along a line; evaluations and start are not in it. Learning rates {tuned}."
    )
    return [text, solution_origin(provenance)]
