"""The page's part about time to solution: a sentence per cell, the way of every training, and the time over ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlscale.analysis.curves import curves_of, dodge, limits
from dlscale.analysis.declare import Axis, Block, Guide, Plot, Point, Sentence, Series, Tags, tags_of
from dlscale.analysis.findings.energy import Energy
from dlscale.analysis.findings.learning_curves import (
    PROGRESS,
    Measure,
    Progress,
    drawn_per_training,
    drawn_points,
    measures,
    thinning_text,
)
from dlscale.analysis.findings.pareto import PARETO, comparable, front_text, priced
from dlscale.analysis.findings.solution_table import SOLUTIONS, solution_table
from dlscale.analysis.findings.solutions import TimeToSolution, fastest_first, goal_text, unequal_tuning
from dlscale.analysis.findings.trainings import Training
from dlscale.analysis.findings.tuning import RateSearch, budget_text, rate_table
from dlscale.analysis.render.html.curves import rank_axis
from dlscale.analysis.text import backend_name, interval_note, plural, with_limits, workload_title

MOST_POINTS = 5000  # of a plot, over all trainings
LEAD = (
    "Every training went on until its metric reached the target on held-out samples, or its time was over. "
    "One line is one training, each with a seed of its own."
)

RATES_LEAD = (
    "Every configuration was trained at every rate with as many seeds, up to the same number of samples."
)


def solution_sentences(rows: Sequence[TimeToSolution]) -> tuple[str, ...]:
    """A sentence per cell, the fastest on the most ranks first; before them that they were not tuned alike."""
    return (*unequal_tuning(rows), *_cell_sentences(rows))


def _cell_sentences(rows: Sequence[TimeToSolution]) -> tuple[str, ...]:
    """One per cell, the fastest first; where there are several trainings each says which it is about."""
    several = len({row.family for row in rows}) > 1
    return tuple(
        f"{_training_title([row])}: {row.text}" if several else row.text for row in fastest_first(rows)
    )


def search_blocks(searches: Sequence[RateSearch]) -> Iterator[Block]:
    """Sentences and the table of the rates that were tried; nothing without a search."""
    for search in searches:
        yield Sentence(text=search.text, tags=tags_of(search.tried[0].cell))
    if searches:
        yield Sentence(text=budget_text(searches))
        yield rate_table(searches)


def solution_blocks(rows: Sequence[TimeToSolution], energies: Sequence[Energy]) -> Iterator[Block]:
    """Sentences, plots per training family, and the tables; nothing without trainings that have a target."""
    yield from (Sentence(text=text, strong=True) for text in unequal_tuning(rows))
    for row, sentence in zip(fastest_first(rows), _cell_sentences(rows), strict=True):
        yield Sentence(text=sentence, tags=tags_of(row.cell))
    families = sorted({row.family for row in rows})
    plots = [
        (*learning_plots(own, place), *time_plots(own, place))
        for place, family in enumerate(families)
        if (own := [row for row in rows if row.family == family])
    ]
    # Plots of one kind follow each other, so that those of two frameworks stand side by side.
    kinds = dict.fromkeys(_kind(plot) for own in plots for plot in own)
    for kind in kinds:
        yield from (plot for own in plots for plot in own if _kind(plot) == kind)
    if rows:
        yield solution_table(rows)
    cells = priced(rows, energies)
    for group in comparable(cells):
        yield Sentence(text=front_text(group), tags=Tags(workload=group[0].row.cell.workload))
    if cells:
        yield PARETO.of(cells)


def _kind(plot: Plot) -> str:
    """The plot's name without the number of its family."""
    return plot.name.rpartition("-")[0]


def learning_plots(rows: Sequence[TimeToSolution], place: int) -> Iterator[Plot]:
    """Metric and loss of all trainings of a family against time, epochs and steps; `rows` is not empty."""
    for measure in measures(rows):
        for progress in PROGRESS:
            plot = _learning_plot(rows, measure, progress, name=f"{measure.name}-{progress.name}-{place}")
            if any(series.points for series in plot.series):
                yield plot


def _learning_plot(
    rows: Sequence[TimeToSolution], measure: Measure, progress: Progress, *, name: str
) -> Plot:
    trainings = [training for row in rows for training in row.trainings]
    most = drawn_per_training(len(trainings), most=MOST_POINTS)
    longest = max(len(training.solution.evaluations) for training in trainings)
    target = rows[0].target
    return Plot(
        name=name,
        title=f"{_training_title(rows)}: {measure.title} against {progress.name}",
        says=f"The way of every training to {goal_text(target)}.",
        x=Axis(title=progress.title),
        y=Axis(title=measure.title),
        series=tuple(
            Series(
                name=backend_name(row.cell),
                look=backend_name(row.cell),
                evidence=row.evidence,
                points=tuple(_points(row, training, measure, progress, most)),
                tags=tags_of(row.cell),
                joined=True,
            )
            for row in rows
            for training in row.trainings
        ),
        guides=(Guide(label="target", y=target.threshold),) if measure.name == "quality" else (),
        notes=tuple(filter(None, [thinning_text(longest, most)])),
        table=SOLUTIONS.name,
    )


def _points(
    row: TimeToSolution, training: Training, measure: Measure, progress: Progress, most: int
) -> Iterator[Point]:
    who = f"{backend_name(row.cell)}, {plural(row.cell.num_ranks, 'rank')}, seed {training.seed}"
    for point in drawn_points(training, progress, measure, most=most):
        yield Point(x=point.x, y=point.y, lines=(f"{who}: {point.y:.4g} at step {point.evaluation.step}",))


def time_plots(rows: Sequence[TimeToSolution], place: int) -> Iterator[Plot]:
    """The median time to solution of a family over ranks, and the ideal; nothing if no median is known."""
    curves = curves_of(rows, lambda row: row.seconds)
    if not curves:
        return
    names = list(dict.fromkeys(curve.name for curve in curves))
    shown = [row for curve in curves for row in curve.rows]
    known = [row.seconds for row in shown if row.seconds]
    yield Plot(
        name=f"time-to-solution-{place}",
        title=f"{_training_title(rows)}: time to {goal_text(rows[0].target)}",
        says=" ".join(solution_sentences(rows)),
        x=rank_axis(shown),
        y=Axis(title="time to solution [s]", low=0, high=1.08 * limits(known)[1]),
        series=tuple(
            Series(
                name=curve.name,
                look=curve.name,
                evidence=curve.evidence,
                points=tuple(
                    Point(
                        x=row.cell.num_ranks * dodge(names.index(curve.name), len(names)),
                        y=row.seconds.center,
                        low=row.seconds.low,
                        high=row.seconds.high,
                        lines=(
                            f"{curve.name}, {plural(row.cell.num_ranks, 'rank')}",
                            f"{with_limits(row.seconds)} s",
                            interval_note(row.seconds, "training"),
                        ),
                    )
                    for row in curve.rows
                    if row.seconds
                ),
                tags=tags_of(curve.rows[0].cell),
                joined=curve.joined,
            )
            for curve in curves
        ),
        guides=_ideal(rows),
        table=SOLUTIONS.name,
    )


def _ideal(rows: Sequence[TimeToSolution]) -> tuple[Guide, ...]:
    base = next((row for row in rows if row.base == row.cell), None)
    if base is None or base.seconds is None:
        return ()
    whole = base.seconds.center * base.cell.num_ranks
    ranks = sorted({row.cell.num_ranks for row in rows})
    return (Guide(label="ideal", points=tuple((float(count), whole / count) for count in ranks)),)


def _training_title(rows: Sequence[TimeToSolution]) -> str:
    cell = rows[0].cell
    return f"{workload_title(cell.workload)}, {cell.framework}"
