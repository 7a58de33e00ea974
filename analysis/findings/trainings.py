"""One training with a target: what it took, in which launches, and how good it was.

Its time counts from its launch: start of the ranks, import of the framework and of the backend, connecting, building
the networks, training, evaluating. Gates, which only a benchmark has, are left out. Of several launches all starts
count, and what saving and restoring the state took; work that a killed launch lost is counted apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlscale.analysis.launches import Block, CellLaunches, MeasuredCase
from dlscale.analysis.records import slowest_in_phase
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.target import Evaluation, Solution, Target, TrainingLaunch
from dlscale.models.quality.metric import Metric

LAUNCH_PHASES = ("start_up", "import_backend", "connect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One training with a target. Times in seconds, of the slowest rank."""

    block: Block
    seed: int
    solution: Solution
    launch_seconds: float | None  # before the networks are built; None if a rank's is not known
    seconds_per_step: float  # the median over windows, as of every launch
    seconds_per_epoch: float | None = (
        None  # of its steps alone; None if the samples are not known or the batch grows
    )
    launches: tuple[TrainingLaunch, ...] = ()  # empty where it was not saved: then it had one

    @property
    def last(self) -> Evaluation:
        return self.solution.evaluations[-1]

    @property
    def reached(self) -> bool:
        return self.solution.end == "reached"

    @property
    def seconds(self) -> float | None:
        """From the launch to the end: evaluations, saving and the starts of all launches that count are included."""
        return self.seconds_at(self.last)

    def seconds_at(self, evaluation: Evaluation) -> float | None:
        """From the launch to the end of that evaluation."""
        own = None if self.launch_seconds is None else self.launch_seconds + self.solution.set_up_seconds
        outside = seconds_outside(self.launches, own, evaluation)
        return (
            None if outside is None else outside + evaluation.training_seconds + evaluation.evaluating_seconds
        )

    @property
    def saving_seconds(self) -> float:
        """Saving and restoring the state, in the launches that count."""
        return _saving_seconds(launch for launch in self.launches if launch.counts)

    @property
    def lost_seconds(self) -> float:
        """Work of killed launches that was done again, and is in no other time."""
        return math.fsum(
            launch.lost_seconds
            + (0.0 if launch.counts else (launch.start_seconds or 0.0) + launch.restoring_seconds)
            for launch in self.launches
        )

    def epoch_at(self, evaluation: Evaluation) -> float | None:
        """The epochs until that evaluation: samples over those of an epoch."""
        num_training = self.solution.num_training
        return evaluation.samples / num_training if num_training else None


def seconds_outside(
    launches: Sequence[TrainingLaunch], start_seconds: float | None, evaluation: Evaluation
) -> float | None:
    """Seconds of a training until an evaluation that are neither training nor evaluating: starts, and checkpoints.

    Of the launches those count that it goes back to; without any, it is `start_seconds`. None if a start is not known.
    """
    counting = [one for one in launches if one.counts and one.first_step < evaluation.step]
    if not counting:
        return start_seconds
    known = [one.start_seconds for one in counting if one.start_seconds is not None]
    return math.fsum(known) + _saving_seconds(counting) if len(known) == len(counting) else None


def _saving_seconds(launches: Iterable[TrainingLaunch]) -> float:
    return math.fsum(launch.saving_seconds + launch.restoring_seconds for launch in launches)


def trainings_of(launches: CellLaunches) -> tuple[Training, ...]:
    """The good launches of a cell that ended by themselves."""
    return tuple(_training(case, case.record.solution) for case in launches.good if case.record.solution)


def _training(case: MeasuredCase, solution: Solution) -> Training:
    record, num_training = case.record, solution.num_training
    return Training(
        block=case.block,
        seed=record.order_seed + record.case.block,
        solution=solution,
        launch_seconds=launch_seconds(record),
        seconds_per_step=case.world,
        seconds_per_epoch=case.world * num_training / case.cell.global_batch if num_training else None,
        launches=tuple(record.launches),
    )


def launch_seconds(record: Record) -> float | None:
    """From the launch until the ranks are connected, of the slowest rank in each phase; None if one is not known."""
    seconds = [slowest_in_phase(record.phases, name) for name in LAUNCH_PHASES]
    known = [value for value in seconds if value is not None]
    return math.fsum(known) if len(known) == len(seconds) else None


def metric_of(cell: Cell, target: Target) -> Metric:
    """What a cell's target is about."""
    metric: Metric = cell.facts.quality().METRICS[target.metric]
    return metric


def closest_value(cell: Cell, target: Target, trainings: Iterable[Training]) -> float | None:
    """The best value of the target's metric that any of the trainings had; None if none was computed."""
    values = [
        evaluation.metrics[target.metric]
        for training in trainings
        for evaluation in training.solution.evaluations
        if target.metric in evaluation.metrics
    ]
    best = max if metric_of(cell, target).higher_is_better else min
    return best(values, default=None)
