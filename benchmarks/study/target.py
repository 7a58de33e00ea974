"""The quality that a study's trainings are to reach, as its TOML file and the command line say it.

`TargetRules` is the study's [target]; `resolved` makes of it what a cell keeps (`record.Target`): the metric of one
workload and preset, steps between evaluations, and the learning rate for its global batch.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.errors import UsageError, did_you_mean
from dlscale.base.quantities import Counts, Duration
from dlscale.base.strings import Text
from dlscale.benchmarks.records.target import LearningRateScaling, Target
from dlscale.models.held_out import held_out_samples
from dlscale.models.optimizers import (
    Momentum,
    OptimizerName,
    OptimizerRule,
    RateSchedule,
    check_ascending,
    optimizer_rule,
)
from dlscale.models.quality.metric import Metric
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
    """A study's [target]. A field with a description can be set on the command line (`settings`)."""

    goals: dict[Text, dict[Text, Goal]] = {}  # workload -> preset -> goal
    metric: Text | None = None  # of all workloads, instead of their goals'
    threshold: Threshold | None = None
    held_out: float = Field(gt=0, lt=1, description="Share of the samples that is held out.")
    evaluate_samples: PositiveInt = Field(
        description="Samples between two evaluations, rounded to whole steps."
    )
    max_seconds: Duration = Field(description="Time limit per training, its evaluations included.")
    max_samples: PositiveInt | None = where_given(
        None, description="Limit of samples per training; default: none."
    )
    learning_rate: Rate | None = Field(None, description="Learning rate of 1 rank, of all workloads.")
    learning_rate_scaling: LearningRateScaling = Field(
        "none", description="Growth of the learning rate with the global batch."
    )
    warm_up_samples: NonNegativeInt = where_given(
        0, description="Samples over which the learning rate rises from that of 1 rank to the scaled one."
    )
    decay_samples: Counts = where_given(
        [], description="Numbers of samples after each of which the learning rate is divided by 10."
    )
    optimizer: Literal["workload"] | OptimizerName = where_given(
        "workload", description="Optimizer: the workload's own, or one by name, with a learning rate."
    )
    momentum: Momentum | None = where_given(None, description="Momentum of optimizer sgd; default: 0.")

    @property
    def rule(self) -> OptimizerRule | None:
        """The optimizer by name; None: the networks' own. Raises ValueError for a momentum that it has not."""
        if self.optimizer != "workload":
            return optimizer_rule(self.optimizer, momentum=self.momentum)
        if self.momentum is not None:
            raise ValueError(f"momentum {self.momentum:g} needs an optimizer by name; give one, e.g. sgd")
        return None

    @model_validator(mode="after")
    def _check_optimizer(self) -> TargetRules:
        _ = self.rule  # raises for a momentum that it has not
        return self

    @model_validator(mode="after")
    def _check_schedule(self) -> TargetRules:
        if self.warm_up_samples and self.learning_rate_scaling == "none":
            raise ValueError(
                f"a warm-up over {self.warm_up_samples} samples begins with the rate of 1 rank, which is the rate of "
                "all here; set target.learning_rate_scaling to linear or sqrt"
            )
        return self

    @field_validator("decay_samples")
    @classmethod
    def _check_order(cls, value: list[int]) -> list[int]:
        return check_ascending(value)

    @model_validator(mode="after")
    def _check_limits(self) -> TargetRules:
        if self.max_samples and self.max_samples < self.evaluate_samples:
            raise ValueError(
                f"max_samples = {self.max_samples} ends trainings before their first evaluation, which comes after "
                f"evaluate_samples = {self.evaluate_samples}; allow more samples, or evaluate earlier"
            )
        return self


def resolved(
    rules: TargetRules,
    workload: Workload,
    preset: Preset,
    *,
    source: Input,
    global_batch: int,
    base_batch: int,
) -> Target:
    """The target of a cell with that global batch; `base_batch` is that of 1 rank, for which learning rates are given.

    Raises UsageError for a metric that the workload has not, a threshold that it cannot reach, and resident tensors.
    """
    metrics: dict[str, Metric] = workload.quality().METRICS
    if source.synthetic:
        raise UsageError(
            f"{workload.name} on synthetic tensors: there is nothing to learn; give --data, or leave it out"
        )
    goal = rules.goals.get(workload.name, {}).get(preset.name)
    metric, threshold = rules.metric or (goal.metric if goal else None), rules.threshold
    if threshold is None and goal and metric == goal.metric:
        threshold = goal.threshold
    if metric is None or threshold is None:
        name = metric or next(iter(metrics))
        raise UsageError(
            f"{workload.name} with preset {preset.name} has no target; give one, e.g. --target {name}=0.9 "
            f"(metrics: {', '.join(metrics)})"
        )
    _check(metric, threshold, metrics, workload)
    rate = own_rate(rules, workload, preset)
    return Target(
        metric=metric,
        threshold=threshold,
        held_out=rules.held_out,
        evaluate_every=max(1, round(rules.evaluate_samples / global_batch)),
        max_seconds=rules.max_seconds,
        max_samples=rules.max_samples,
        learning_rate=rate * _growth(rules.learning_rate_scaling, global_batch / base_batch),
        scaling=rules.learning_rate_scaling,
        schedule=_schedule(rules, first_rate=rate),
        optimizer=rules.rule,
    )


def own_rate(rules: TargetRules, workload: Workload, preset: Preset) -> float:
    """The learning rate of 1 rank: the user's, the study's or the workload's own."""
    goal = rules.goals.get(workload.name, {}).get(preset.name)
    return rules.learning_rate or (goal and goal.learning_rate) or preset.learning_rate


def check_held_out(rules: TargetRules, num_samples: int, *, source: Input, needed: int) -> int:
    """The number of held-out samples, if there are some and `needed` others, a global batch. Raises UsageError."""
    num_held_out = len(held_out_samples(num_samples, share=rules.held_out))
    if num_held_out and num_samples - num_held_out >= needed:
        return num_held_out
    raise UsageError(
        f"{source.path}: of {num_samples} samples a share of {rules.held_out:g} holds out {num_held_out} and leaves "
        f"{num_samples - num_held_out} to train on; both parts are needed, and one global batch of {needed}: give more "
        "samples or another share"
    )


def expected_samples(rules: TargetRules, workload: str, preset: str) -> int | None:
    """About how many samples a training needs; None if the study does not say."""
    goal = rules.goals.get(workload, {}).get(preset)
    return goal.samples if goal else None


def _check(metric: str, threshold: float, metrics: dict[str, Metric], workload: Workload) -> None:
    if metric not in metrics:
        hint = did_you_mean(metric, metrics)
        raise UsageError(
            f"{workload.name} has no metric {metric!r}{hint}; choose one of: {', '.join(metrics)}"
        )
    limits = metrics[metric]
    if not limits.least <= threshold <= limits.most:
        raise UsageError(
            f"--target {metric}={threshold:g} can never be reached: {limits.text} lies between {limits.least:g} and "
            f"{limits.most:g}"
        )


def _schedule(rules: TargetRules, *, first_rate: float) -> RateSchedule | None:
    if not (rules.warm_up_samples or rules.decay_samples):
        return None
    return RateSchedule(
        first_rate=first_rate,
        warm_up_samples=rules.warm_up_samples,
        decay_samples=rules.decay_samples,
    )


def _growth(scaling: LearningRateScaling, batches: float) -> float:
    return {"none": 1.0, "linear": batches, "sqrt": math.sqrt(batches)}[scaling]
