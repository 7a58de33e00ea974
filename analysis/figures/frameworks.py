"""Programs compared: throughput over ranks, and the loss of every training against steps and against time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlscale.analysis.curves import curves_of
from dlscale.analysis.declare import Figure
from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw as draw_figure
from dlscale.analysis.figures.layout import Captioned
from dlscale.analysis.figures.write import save_drawing
from dlscale.analysis.findings.curve_plots import throughput_of
from dlscale.analysis.findings.framework_answers import Question
from dlscale.analysis.findings.framework_comparison import Program, alike_on_all_ranks, to_program_row
from dlscale.analysis.findings.small_print import solution_origin, span
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.render.html.frameworks import program_plots
from dlscale.analysis.text import plural
from dlscale.base.files import all_or_nothing


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
    intervals = [
        item.throughput for curve in curves_of(group, throughput_of) for item in curve.rows if item.throughput
    ]
    if not intervals:
        return None
    rates, *ways = program_plots(group, 0)
    losses = [plot for name in ("loss-steps", "loss-time") for plot in ways if plot.name.startswith(name)]
    text = [
        f"Throughput: median over n = {span([interval.n for interval in intervals])} launches, bars: its "
        "order-statistic interval."
    ]
    if losses:
        text.append(
            "Losses: every line is a training with its own seed; that of a step's batch, mean over ranks. Time since "
            "the launch is without gates."
        )
    figure = Figure(
        name="frameworks",
        title=f"frameworks: {group[0].training_title}, {group[0].cell.scaling_mode} scaling",
        warning=verdict,
        subtitle=f"{_batch_text(group[0])}, {group[0].cell.precision}",
        small_print=(" ".join(text), solution_origin(provenance)),
        panels=tuple(replace(plot, title="") for plot in (rates, *losses)),
        rows=(),
    )
    return draw_figure(figure)


def _batch_text(item: Program) -> str:
    cell = item.cell
    if cell.scaling_mode == "weak":
        return f"{plural(cell.local_batch, 'sample')} per rank and step"
    return f"{plural(cell.global_batch, 'sample')} per step over all ranks"


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
