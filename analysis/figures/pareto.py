"""Time to solution against what it costs: each cell, and the front that none beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from dlscale.analysis.curves import curves_of, limits
from dlscale.analysis.families import Family
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    GREY,
    RIM,
    SINGLE_COLUMN_INCHES,
    curve_handles,
    evidence_handles,
    looks_of,
    marker_style,
    whiskers,
)
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.findings.energy import Energy
from dlscale.analysis.findings.pareto import Priced, comparable, priced, shown_cost, to_pareto_row
from dlscale.analysis.findings.solutions import TimeToSolution, goal_text
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import backend_name

FRONT: dict[str, Any] = {"color": GREY, "linewidth": 0.9, "linestyle": (0, (1, 1.5)), "zorder": 1}
TITLES = {"node_hours": "node-hours", "core_hours": "core-hours", "kilojoules": "energy [kJ]"}


def draw(
    family: Family,
    rows: Sequence[TimeToSolution],
    energies: Sequence[Energy],
    provenance: Provenance,
    form: Form = SCREEN,
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure of a family and the rows behind it; None with fewer than two cells whose time is known.

    Left node-hours where cells differ in nodes, else core-hours; right energy, where it was read.
    """
    cells = priced([row for row in rows if not form.backends or row.cell.backend in form.backends], energies)
    if len(cells) < 2:
        return None
    names = [shown_cost(cells), *(["kilojoules"] if any(cell.kilojoules for cell in cells) else [])]
    curves = curves_of([cell.row for cell in cells], _seconds)
    figure, axes = figure_with_axes(
        form=form,
        width=DOUBLE_COLUMN_INCHES if len(names) > 1 else SINGLE_COLUMN_INCHES,
        num_panels=len(names),
        title=f"what {goal_text(cells[0].row.target)} costs: {family.title}",
        warning="",
        subtitle=family.constants,
        handles=[
            *curve_handles(curves),
            Line2D([], [], label="Pareto front", **FRONT),
            *evidence_handles(curves, form),
        ],
        small_print=_small_print(provenance),
        shared=False,
    )
    looks = looks_of(curves)
    for place, name in enumerate(names):
        _draw(axes[place], [cell for cell in cells if cell.cost(name)], name, looks)
    return figure, [to_pareto_row(cell) for cell in cells]


def _seconds(row: TimeToSolution) -> Interval | None:
    return row.seconds


def _draw(axes: Axes, cells: Sequence[Priced], name: str, looks: Any) -> None:
    for group in comparable(cells):
        best = sorted(
            (cell.seconds.center, cost.center)
            for cell in group
            if name in cell.fronts and (cost := cell.cost(name))
        )
        axes.step([x for x, _ in best], [y for _, y in best], where="post", **FRONT)
    for cell in cells:
        if (cost := cell.cost(name)) is None:
            continue
        axes.errorbar(
            cell.seconds.center,
            cost.center,
            xerr=np.transpose([whiskers(cell.seconds)]),
            yerr=np.transpose([whiskers(cost)]),
            ecolor=RIM,
            elinewidth=0.7,
            capsize=1.8,
            barsabove=True,
            linestyle="",
            zorder=3,
            **marker_style(looks[backend_name(cell.row.cell)], cell.row.evidence),
        )
        axes.annotate(
            str(cell.row.cell.num_ranks),
            (cell.seconds.center, cost.center),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=7,
            zorder=4,
        )
    axes.set_xlim(0, 1.08 * limits([cell.seconds for cell in cells])[1])
    axes.set_ylim(0, 1.08 * limits([cost for cell in cells if (cost := cell.cost(name))])[1])
    axes.set_xlabel("time to solution [s]")
    axes.set_ylabel(TITLES[name])


def _small_print(provenance: Provenance) -> list[str]:
    text = (
        "Medians over trainings from the launch to the target, with order-statistic intervals; numbers are ranks. "
        "No other cell is both faster and cheaper than one on the front. Node-hours are of whole nodes, core-hours of "
        "the cores that ranks are bound to; energy is joules per sample of all nodes times the median samples."
    )
    commits = ", ".join(commit[:12] for commit in provenance.commits)
    where = f"Study {', '.join(provenance.studies)}; commit {commits}; data {provenance.data_hash[:12]}."
    return [text, where]
