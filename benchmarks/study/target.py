"""The quality that a study's trainings are to reach, as its TOML file and the command line say it.

`TargetRules` is the study's [target]; `resolved` makes of it what a cell keeps (`record.Target`): the metric of one
workload and preset, steps between evaluations, and the learning rate for its global batch.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.base.quantities import parse_seconds
from dlscale.benchmarks.records.record import LearningRateScaling, Target
from dlscale.models.held_out import held_out_samples
from dlscale.models.quality.metric import Metric
from dlscale.models.workload import Input, Preset, Workload

Threshold = Annotated[float, Field(allow_inf_nan=False)]
Rate = Annotated[PositiveFloat, Field(allow_inf_nan=False)]


class Goal(Frozen):
    """The target of one workload and preset. `samples` are about how many it takes, for the plan's estimate alone."""

    metric: str
    threshold: Threshold
    learning_rate: Rate | None = None  # None: the workload's own
    samples: PositiveInt | None = None


class TargetRules(Frozen):
    """A study's [target]."""

    goals: dict[str, dict[str, Goal]] = {}  # workload -> preset -> goal
    metric: str | None = None  # of all workloads, instead of their goals'
    threshold: Threshold | None = None
    held_out: float = Field(gt=0, lt=1)
    evaluate_samples: PositiveInt  # samples between two evaluations, rounded to whole steps
    max_seconds: PositiveFloat = Field(allow_inf_nan=False)  # of one training, its evaluations included
    learning_rate: Rate | None = None  # of all workloads
    scaling: LearningRateScaling = "none"

    @field_validator("max_seconds", mode="before")
    @classmethod
    def _read_seconds(cls, value: Any) -> Any:
        return parse_seconds(value) if isinstance(value, str) else value


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
    rate = rules.learning_rate or (goal and goal.learning_rate) or preset.learning_rate
    return Target(
        metric=metric,
        threshold=threshold,
        held_out=rules.held_out,
        evaluate_every=max(1, round(rules.evaluate_samples / global_batch)),
        max_seconds=rules.max_seconds,
        learning_rate=rate * _growth(rules.scaling, global_batch / base_batch),
        scaling=rules.scaling,
    )


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
        raise UsageError(f"{workload.name} has no metric {metric!r}; choose one of: {', '.join(metrics)}")
    limits = metrics[metric]
    if not limits.least <= threshold <= limits.most:
        raise UsageError(
            f"--target {metric}={threshold:g} can never be reached: {limits.text} lies between {limits.least:g} and "
            f"{limits.most:g}"
        )


def _growth(scaling: LearningRateScaling, batches: float) -> float:
    return {"none": 1.0, "linear": batches, "sqrt": math.sqrt(batches)}[scaling]
