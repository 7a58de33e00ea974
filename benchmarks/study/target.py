"""The quality that a study's trainings are to reach: the study's [target], and what a cell keeps of it."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError, did_you_mean
from dlscale.base.quantities import Counts, Duration
from dlscale.base.strings import Text
from dlscale.benchmarks.records.target import LearningRateScaling, Target
from dlscale.benchmarks.study.rules import option
from dlscale.models.held_out import held_out_samples
from dlscale.models.optimizers import (
    Momentum,
    OptimizerName,
    OptimizerRule,
    RateSchedule,
    check_ascending,
    optimizer_rule,
)
from dlscale.models.workload import Input, Preset, Workload

Rate = Annotated[PositiveFloat, Field(allow_inf_nan=False)]
Threshold = Annotated[float, Field(allow_inf_nan=False)]


class Goal(Frozen):
    """The target of one workload and preset. `samples` are about how many it takes, for the plan's estimate alone."""

    metric: Text
    threshold: Threshold
    learning_rate: Rate | None = None  # None: the workload's own
    samples: PositiveInt | None = None


class TargetRules(Frozen):
    """A study's [target]."""

    goals: dict[Text, dict[Text, Goal]] = {}  # workload -> preset -> goal
    metric: Text | None = None  # of all workloads, instead of their goals'
    threshold: Threshold | None = None
    held_out: float = option(..., "Share of the samples that is held out.", gt=0, lt=1)
    evaluate_samples: PositiveInt = option(..., "Samples between two evaluations, rounded to whole steps.")
    max_seconds: Duration = option(..., "Time limit per training, its evaluations included.")
    max_samples: PositiveInt | None = option(
        None, "Limit of samples per training; default: none.", given=True
    )
    learning_rate: Rate | None = option(None, "Learning rate of 1 rank, of all workloads.")
    learning_rate_scaling: LearningRateScaling = option(
        "none", "Growth of the learning rate with the global batch."
    )
    warm_up_samples: NonNegativeInt = option(
        0, "Samples over which the learning rate rises from that of 1 rank.", given=True
    )
    decay_samples: Annotated[Counts, AfterValidator(check_ascending)] = option(
        [], "Numbers of samples after each of which the learning rate is divided by 10.", given=True
    )
    optimizer: Literal["workload"] | OptimizerName = option(
        "workload", "Optimizer: the workload's own, or one by name, with a learning rate.", given=True
    )
    momentum: Momentum | None = option(None, "Momentum of optimizer sgd; default: 0.", given=True)

    @property
    def rule(self) -> OptimizerRule | None:
        """The optimizer by name; None: the networks' own. Raises ValueError for a momentum that it has not."""
        if self.optimizer != "workload":
            return optimizer_rule(self.optimizer, momentum=self.momentum)
        if self.momentum is not None:
            raise ValueError(f"momentum {self.momentum:g} needs an optimizer by name; give one, e.g. sgd")
        return None

    @model_validator(mode="after")
    def _check(self) -> TargetRules:
        _ = self.rule  # raises for a momentum that it has not
        if self.warm_up_samples and self.learning_rate_scaling == "none":
            raise ValueError(
                f"a warm-up over {self.warm_up_samples} samples begins with the rate of 1 rank, which is the rate of "
                "all here; set target.learning_rate_scaling to linear or sqrt"
            )
        if self.max_samples and self.max_samples < self.evaluate_samples:
            raise ValueError(
                f"max_samples = {self.max_samples} ends trainings before their first evaluation, which comes after "
                f"evaluate_samples = {self.evaluate_samples}; allow more samples, or evaluate earlier"
            )
        return self

    def goal(self, workload: str, preset: str) -> Goal | None:
        """The study's own goal of a workload and preset; None: it has none."""
        return self.goals.get(workload, {}).get(preset)

    def of_cell(self, workload: Workload, preset: Preset, *, global_batch: int, base_batch: int) -> Target:
        """The target of a cell with that global batch; learning rates are given for `base_batch`, that of 1 rank.

        Raises UsageError for a metric that the workload has not, and a threshold that it cannot reach.
        """
        goal = self.goal(workload.name, preset.name)
        metric, threshold = self._reached(workload, preset, goal)
        rate = self.learning_rate or (goal and goal.learning_rate) or preset.learning_rate
        growth = global_batch / base_batch
        schedule = RateSchedule(
            first_rate=rate, warm_up_samples=self.warm_up_samples, decay_samples=self.decay_samples
        )
        return Target(
            metric=metric,
            threshold=threshold,
            held_out=self.held_out,
            evaluate_every=max(1, round(self.evaluate_samples / global_batch)),
            max_seconds=self.max_seconds,
            max_samples=self.max_samples,
            learning_rate=rate
            * {"none": 1.0, "linear": growth, "sqrt": math.sqrt(growth)}[self.learning_rate_scaling],
            scaling=self.learning_rate_scaling,
            schedule=schedule if self.warm_up_samples or self.decay_samples else None,
            optimizer=self.rule,
        )

    def _reached(self, workload: Workload, preset: Preset, goal: Goal | None) -> tuple[str, float]:
        metrics = workload.quality().METRICS
        metric, threshold = self.metric or (goal.metric if goal else None), self.threshold
        if threshold is None and goal and metric == goal.metric:
            threshold = goal.threshold
        if metric is None or threshold is None:
            raise UsageError(
                f"{workload.name} with preset {preset.name} has no target; give one, e.g. --target "
                f"{metric or next(iter(metrics))}=0.9 (metrics: {', '.join(metrics)})"
            )
        if metric not in metrics:
            hint = did_you_mean(metric, metrics)
            raise UsageError(
                f"{workload.name} has no metric {metric!r}{hint}; choose one of: {', '.join(metrics)}"
            )
        limits = metrics[metric]
        if not limits.least <= threshold <= limits.most:
            raise UsageError(
                f"--target {metric}={threshold:g} can never be reached: {limits.text} lies between {limits.least:g} "
                f"and {limits.most:g}"
            )
        return metric, threshold


def check_held_out(
    rules: TargetRules, workload: Workload, preset: Preset, *, source: Input, needed: int, speed: float
) -> None:
    """Returns if some samples are held out, `needed` others remain, and an evaluation has its time.

    `speed` is that of the fewest ranks, in floating-point operations per second. Raises UsageError.
    """
    if source.synthetic:
        raise UsageError(
            f"{workload.name} on synthetic tensors: there is nothing to learn; give --data, or leave it out"
        )
    num_samples = workload.num_samples(source, preset)
    num_held_out = len(held_out_samples(num_samples, share=rules.held_out))
    if not num_held_out or num_samples - num_held_out < needed:
        raise UsageError(
            f"{source.path}: of {num_samples} samples a share of {rules.held_out:g} holds out {num_held_out} and "
            f"leaves {num_samples - num_held_out} to train on; both parts are needed, and one global batch of "
            f"{needed}: give more samples or another share"
        )
    seconds = num_held_out * preset.forward_flops_per_sample / speed
    if seconds > rules.max_seconds:
        raise UsageError(
            f"target.max_seconds = {rules.max_seconds:g}: an evaluation on {num_held_out} held-out samples takes about "
            f"{seconds:.2g} s alone; allow more, or hold out fewer"
        )
