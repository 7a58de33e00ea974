"""What a training with a target is to reach, how it goes there, and what it did: parts of cells and records."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.strings import Text
from dlscale.models.optimizers import OptimizerRule, RateSchedule

LearningRateScaling = Literal["none", "linear", "sqrt"]


class Target(Frozen):
    """The quality that a training is to reach on held-out samples, and how it goes there.

    `scaling` says how `learning_rate`, which is used, follows from the rate of 1 rank with the ratio of global batches:
    not at all, in proportion (P. Goyal et al., arXiv:1706.02677), or with the square root (A. Krizhevsky,
    arXiv:1404.5997). `schedule` says how it changes while training, and `optimizer` what it is the rate of.
    """

    metric: Text  # of the workload's `quality.METRICS`
    threshold: float
    held_out: float = Field(gt=0, lt=1)  # share of the samples (`models/held_out.py`)
    evaluate_every: PositiveInt  # steps
    max_seconds: PositiveFloat  # training and evaluating; then the training ends short of the target
    max_samples: PositiveInt | None = where_given(None)  # likewise, over all ranks
    learning_rate: PositiveFloat
    scaling: LearningRateScaling = "none"
    schedule: RateSchedule | None = where_given(None)  # None: the rate is constant
    optimizer: OptimizerRule | None = where_given(None)  # None: the network's own

    def rate(self, samples: int) -> float:
        """The learning rate of the step that begins after so many samples over all ranks."""
        return self.schedule.rate(self.learning_rate, samples) if self.schedule else self.learning_rate


class Evaluation(Frozen):
    """A training's quality after `step`, on held-out samples. Seconds are the slowest rank's, since the first step.

    Metrics that are not finite numbers, or that could not be computed, are left out.
    """

    step: PositiveInt
    samples: PositiveInt  # that the weights took up, over all ranks
    training_seconds: NonNegativeFloat
    evaluating_seconds: NonNegativeFloat  # this evaluation included
    loss: float | None  # mean over ranks, of the step's batch; None where it is not a finite number
    metrics: dict[Text, float]


End = Literal["reached", "budget", "diverged"]


class Ended(Frozen):
    """How a training with a target ended: there, out of time, or with a loss that is not a number."""

    end: End
    set_up_seconds: NonNegativeFloat  # from the gates to the first step: networks, weights, the trainer
    num_held_out: PositiveInt
    num_training: PositiveInt | None = where_given(None)  # samples of an epoch; None: not written yet


class Solution(Ended):
    """A training with a target, from its first evaluation to its end, when it is evaluated, too."""

    evaluations: Annotated[list[Evaluation], Field(min_length=1)]


class TrainingLaunch(Frozen, extra="ignore"):
    """A launch of a training with a target, of which the state stays: what it took apart from steps and evaluations."""

    first_step: NonNegativeInt  # of the state that it began with: 0 or that of a checkpoint
    start_seconds: NonNegativeFloat | None  # to the first step, without gates and restoring; None: unknown
    restoring_seconds: NonNegativeFloat
    saving_seconds: NonNegativeFloat
