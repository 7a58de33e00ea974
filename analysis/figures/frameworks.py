"""Programs compared: throughput over ranks, and the loss of every training against steps and against time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlscale.analysis.curves import curves_of
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    curve_handles,
    draw_curves,
    drawing,
    evidence_handles,
    looks_of,
    rank_axis,
)
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.figures.learning_curves import draw_trainings
from dlscale.analysis.figures.throughput import rate_axis, throughput
from dlscale.analysis.figures.write import save_drawing
from dlscale.analysis.findings.framework_answers import Question
from dlscale.analysis.findings.framework_comparison import Program, alike_on_all_ranks, to_program_row
from dlscale.analysis.findings.learning_curves import PROGRESS, measures
from dlscale.analysis.findings.small_print import solution_origin, span
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import plural
from dlscale.base.files import all_or_nothing

TIME, _, STEPS = PROGRESS


def write_frameworks(
    items: Sequence[Program], asked: Sequence[Question], folder: Path, provenance: Provenance
) -> list[Path]:
    """Draw a figure per training into `folder`, created if needed, and return the files.

    Names are `<workload>-<preset>-<backend>-<number>-frameworks.{png,pdf,svg,csv}`.
    """
    with all_or_nothing(folder) as place:
        written: list[Path] = []
        for number, group in enumerate(alike_on_all_ranks(items)):
            with drawing():
                figure = draw(group, _verdict(group, asked), provenance)
                if figure is None:
                    continue
                cell = group[0].cell
                written += save_drawing(
                    figure,
                    place / f"{cell.workload}-{cell.preset}-{cell.backend}-{number}-frameworks",
                    title=group[0].training_title,
                    rows=[to_program_row(item) for item in group],
                    provenance=provenance,
                )
    return [folder / path.name for path in written]


def draw(group: Sequence[Program], verdict: str, provenance: Provenance) -> Captioned | None:
    """The figure of programs that train the same; None if none has a number.

    `verdict` says that frameworks may not be compared; it is empty if they may. Losses have panels where trainings to a
    target were measured.
    """
    curves = curves_of(group, _any)
    rates = curves_of(group, throughput)
    shown = [item for curve in rates for item in curve.rows]
    if not shown:
        return None
    trained = [item.solution for item in group if item.solution]
    text = [
        f"Throughput: median over n = {span([item.throughput.n for item in shown if item.throughput])} launches, bars: "
        "its order-statistic interval."
    ]
    if trained:
        text.append(
            "Losses: every line is a training with its own seed; that of a step's batch, mean over ranks. Time since "
            "the launch is without gates."
        )
    figure, axes = figure_with_axes(
        width=DOUBLE_COLUMN_INCHES,
        num_panels=3 if trained else 1,
        title=f"frameworks: {group[0].training_title}, {group[0].cell.scaling_mode} scaling",
        warning=verdict,
        subtitle=f"{_batch_text(group[0])}, {group[0].cell.precision}",
        handles=[*curve_handles(curves), *evidence_handles(curves)],
        small_print=[" ".join(text), solution_origin(provenance)],
        shared=False,
    )
    rank_axis(axes[0], shown)
    draw_curves(axes[0], rates, throughput, among=curves)
    rate_axis(axes[0], shown)
    if trained:
        _, loss = measures(trained)
        looks: Any = looks_of(curves)
        for place, progress in zip(axes[1:], (STEPS, TIME), strict=True):
            draw_trainings(place, trained, loss, progress, looks)
    return figure


def _batch_text(item: Program) -> str:
    cell = item.cell
    if cell.scaling_mode == "weak":
        return f"{plural(cell.local_batch, 'sample')} per rank and step"
    return f"{plural(cell.global_batch, 'sample')} per step over all ranks"


def _any(item: Program) -> Interval | None:
    return item.throughput or (item.solution.share if item.solution else None)


def _verdict(group: Sequence[Program], asked: Sequence[Question]) -> str:
    """Why the frameworks of a group may not be compared; empty if they may, or nothing is asked."""
    own = {item.cell.id for item in group}
    return next(
        (
            question.forbidden
            for question in asked
            if question.programs[0].cell.id in own and question.forbidden
        ),
        "",
    )
