"""The page's part about time to solution: a sentence per cell, the quality of every training while it went on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlscale.analysis.findings.learning_curves import drawn_per_training, thinned, thinning_text
from dlscale.analysis.findings.solutions import (
    SOLUTIONS,
    TimeToSolution,
    Training,
    fastest_first,
    goal_text,
    metric_name,
)
from dlscale.analysis.render.html.model import Axis, Block, Guide, Plot, Point, Sentence, Series
from dlscale.analysis.render.tables import tags_of, workload_title
from dlscale.analysis.render.text import backend_name, number, plural

MOST_POINTS = 5000  # of a plot, over all trainings
LEAD = "Every training went on until its metric reached the target on held-out samples, or its time was over."


def solution_sentences(rows: Sequence[TimeToSolution]) -> tuple[str, ...]:
    """A sentence per cell, the fastest on the most ranks first."""
    return tuple(row.text for row in fastest_first(rows))


def solution_blocks(rows: Sequence[TimeToSolution]) -> Iterator[Block]:
    """Sentences, a plot per training family, and the table; nothing without trainings that have a target."""
    for row in fastest_first(rows):
        yield Sentence(text=row.text, tags=tags_of(row.cell))
    for place, family in enumerate(sorted({row.family for row in rows})):
        yield quality_plot([row for row in rows if row.family == family], name=f"quality-{place}")
    if rows:
        yield SOLUTIONS.of(rows)


def quality_plot(rows: Sequence[TimeToSolution], *, name: str) -> Plot:
    """The metric of all trainings of a family over time; `rows` is not empty."""
    first = rows[0]
    target, metric = first.target, first.metric
    trainings = [training for row in rows for training in row.trainings]
    most = drawn_per_training(len(trainings), most=MOST_POINTS)
    longest = max(len(training.solution.evaluations) for training in trainings)
    return Plot(
        name=name,
        title=f"{metric.text} on held-out samples: {workload_title(first.cell.workload)}, {first.cell.framework}",
        says=f"The way of every training to {goal_text(target)}. " + " ".join(solution_sentences(rows)),
        x=Axis(title="time since the first step [s]"),
        y=Axis(title=metric_name(target)),
        series=tuple(
            Series(
                name=backend_name(row.cell),
                look=backend_name(row.cell),
                evidence=row.evidence,
                points=tuple(_points(row, training, most)),
                tags=tags_of(row.cell),
                joined=True,
            )
            for row in rows
            for training in row.trainings
        ),
        guides=(Guide(label="target", y=target.threshold),),
        notes=tuple(filter(None, [thinning_text(longest, most)])),
        table=SOLUTIONS.name,
    )


def _points(row: TimeToSolution, training: Training, most: int) -> Iterator[Point]:
    """At most `most` points of a training, where the metric is known."""
    name = row.target.metric
    known = [evaluation for evaluation in training.solution.evaluations if name in evaluation.metrics]
    who = f"{backend_name(row.cell)}, {plural(row.cell.num_ranks, 'rank')}, seed {training.seed}"
    for place in thinned([evaluation.metrics[name] for evaluation in known], most):
        evaluation, value = known[place], known[place].metrics[name]
        seconds = evaluation.training_seconds + evaluation.evaluating_seconds
        yield Point(
            x=seconds,
            y=value,
            lines=(
                who,
                f"{metric_name(row.target)} {value:.4f} after {number(seconds)} s",
                f"step {evaluation.step}, {evaluation.samples} samples",
            ),
        )
