"""The way of every training with a target: its loss and its metric against time, epochs and steps.

A drawing of hundreds of trainings with thousands of evaluations has more points than anyone sees and more than browsers
can take. It is thinned by one rule, which it states; tables and CSV files keep every evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dlscale.analysis.findings.solutions import TimeToSolution, metric_name
from dlscale.analysis.findings.trainings import Training
from dlscale.benchmarks.records.target import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What an evaluation of a training has on an axis."""

    name: str
    title: str  # of the axis
    of: Callable[[Training, Evaluation], float | None]


PROGRESS = (
    Quantity(
        name="time",
        title="time since the launch [s]",
        of=lambda training, evaluation: training.seconds_at(evaluation),
    ),
    Quantity(name="epochs", title="epoch", of=lambda training, evaluation: training.epoch_at(evaluation)),
    Quantity(name="steps", title="step", of=lambda _, evaluation: evaluation.step),
)


def measures(rows: Sequence[TimeToSolution]) -> tuple[Quantity, Quantity]:
    """The target's metric on held-out samples, and the training's loss; `rows` has at least one, all of a target."""
    target = rows[0].target
    return (
        Quantity(
            name="quality",
            title=f"{metric_name(target)} on held-out samples",
            of=lambda _, evaluation: evaluation.metrics.get(target.metric),
        ),
        Quantity(name="loss", title="training loss", of=lambda _, evaluation: evaluation.loss),
    )


def drawn_points(
    training: Training, progress: Quantity, measure: Quantity, *, most: int
) -> list[tuple[float, float, Evaluation]]:
    """x, y and evaluation of at most `most` evaluations, thinned; those without one of the two are left out."""
    points = [
        (x, y, evaluation)
        for evaluation in training.solution.evaluations
        if (x := progress.of(training, evaluation)) is not None
        and (y := measure.of(training, evaluation)) is not None
    ]
    return [points[place] for place in thinned([y for _, y, _ in points], most)]


LEAST_DRAWN = 20  # evaluations of a training, however many trainings there are


def drawn_per_training(num_trainings: int, *, most: int) -> int:
    """How many evaluations of each training are drawn if all trainings together may have about `most`."""
    return max(LEAST_DRAWN, most // max(num_trainings, 1))


def thinned(values: Sequence[float], most: int) -> list[int]:
    """The places, ascending, of at most `most` of the values (4 or more) that show how they went.

    The first and the last, and the least and the greatest of equal groups of those between: no peak is lost, and no
    value is made up. All of them where there are no more.
    """
    num_values = len(values)
    if num_values <= most:
        return list(range(num_values))
    num_groups = (most - 2) // 2
    kept = {0, num_values - 1}
    ends = [1 + group * (num_values - 2) // num_groups for group in range(num_groups + 1)]
    for begin, end in pairwise(ends):
        kept |= {choose(range(begin, end), key=values.__getitem__) for choose in (min, max)}
    return sorted(kept)


def thinning_text(longest: int, most: int) -> str:
    """The sentence that says what is not drawn of trainings of up to `longest` evaluations; empty if everything is."""
    if longest <= most:
        return ""
    return (
        f"At most {most} evaluations of each training are drawn: the first, the last, and the least and the greatest "
        f"of equal groups of up to {longest}; the CSV file of evaluations has all."
    )
