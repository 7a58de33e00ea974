"""Programs as plots: throughput over ranks, and the learning curves of trainings to a target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from dlscale.analysis.findings.programs import SPEED, Program, by_training, to_program_row
from dlscale.analysis.findings.small_print import solution_origin, span
from dlscale.analysis.findings.solution_plots import learning_plots
from dlscale.analysis.findings.throughput import throughput_plots
from dlscale.analysis.plots import Figure, Plot
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.text import plural

PLOTTED = ("loss-steps", "loss-time", "quality-time")  # of trainings to a target


def program_plots(group: Sequence[Program], place: int) -> Iterator[Plot]:
    """Throughput of the programs of a training over ranks, and the learning curves of those with a target."""
    title = group[0].training_title
    rows = tuple(replace(item.row, cell=item.cell) for item in group)
    for plot in throughput_plots([(group[0].row.family, rows, ())]):
        tags = replace(plot.tags, framework="")
        yield replace(
            plot,
            name=f"throughput-{place}",
            title=title,
            guides=(),
            notes=plot.notes[1:],
            table=SPEED.name,
            tags=tags,
        )
    trained = [item.solution for item in group if item.solution]
    for plot in learning_plots(trained, place) if trained else ():
        if plot.name.startswith(PLOTTED):
            way = plot.x.title.partition(" [")[0]
            yield replace(plot, title=f"{title}: {plot.y.title} against {way}", table=SPEED.name)


def program_figures(items: Iterable[Program], origin: Provenance) -> Iterator[tuple[str, Figure]]:
    """A figure for each training with a rate, and the name of its file."""
    for number, group in enumerate(by_training(items)):
        counts = [item.row.throughput.n for item in group if item.row.throughput]
        if not counts:
            continue
        rates, *ways = program_plots(group, 0)
        losses = [plot for name in ("loss-steps", "loss-time") for plot in ways if plot.name.startswith(name)]
        text = f"Throughput: median over n = {span(counts)} launches, bars: its order-statistic interval."
        if losses:
            text += (
                " Losses: every line is a training with its own seed; that of a step's batch, mean over ranks. Time "
                "since the launch is without gates."
            )
        cell = group[0].cell
        batch = f"{plural(cell.global_batch, 'sample')} per step over all ranks"
        if cell.scaling_mode == "weak":
            batch = f"{plural(cell.local_batch, 'sample')} per rank and step"
        yield (
            f"{cell.workload}-{cell.preset}-{cell.backend}-{number}-frameworks",
            Figure(
                name="frameworks",
                title=f"Frameworks: {group[0].training_title}, {cell.scaling_mode} scaling",
                subtitle=f"{batch}, {cell.precision}",
                small_print=(text, solution_origin(origin)),
                panels=tuple(replace(plot, title="") for plot in (rates, *losses)),
                rows=[to_program_row(item) for item in group],
            ),
        )
