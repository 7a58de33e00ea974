"""Tables of a study: [rules], the lengths of warm-up and measurement, and [target], the quality to reach."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.errors import UsageError
from dlscale.base.quantities import Counts, Duration
from dlscale.base.strings import Text
from dlscale.benchmarks.records.cell import LearningRateScaling, Target
from dlscale.models.optimizers import (
    Momentum,
    OptimizerName,
    OptimizerRule,
    RateSchedule,
    check_ascending,
    optimizer_rule,
)
from dlscale.models.samples import held_out_samples
from dlscale.models.workload import Input, Preset, Workload

Steps = Annotated[NonNegativeInt, Field(le=10**12)]
PositiveSteps = Annotated[PositiveInt, Field(le=10**12)]
Milestones = Annotated[Counts, AfterValidator(check_ascending)]

MOST_WARM_UP = 40  # steps, unless the rules ask for more
MOST_WINDOWS = 200  # of a case
STALL_SECONDS = 300.0  # without a heartbeat from any rank, which ends a launch
SHORT_CONTROL_SECONDS = 0.6  # an estimate of what a short control takes
MOST_LAUNCHES = 10_000
NumLaunches = Annotated[PositiveInt, Field(le=MOST_LAUNCHES)]


def option(default: Any, text: str, panel: str = "", *, given: bool = False, **constraints: Any) -> Any:
    """A field that the command line knows: an everyday flag in a panel of the help, or set by --set.

    With `given` it is written only where it is not the default.
    """
    field = where_given if given else Field
    return field(default, description=text, json_schema_extra={"panel": panel}, **constraints)


class Rules(Frozen):
    """Lengths of warm-up and measurement per case."""

    warmup_steps: PositiveSteps = option(10, "Minimum steps before the first window.")
    min_windows: PositiveSteps = option(10, "Minimum windows per case.")
    min_window_seconds: NonNegativeFloat = option(0.15, "Minimum length of a window.")
    min_steps: PositiveSteps = option(20, "Minimum steps per case, over all windows.")
    max_steps: PositiveSteps = option(5000, "Maximum steps per case, warm-up included.")
    checkpoint_every: Steps = option(
        0, "Steps between checkpoints, which are saved at the next end of a window; 0: never."
    )

    @property
    def longest_warm_up(self) -> int:
        """Maximum steps of a warm-up, steady or not."""
        return max(self.warmup_steps, MOST_WARM_UP)


class Goal(Frozen):
    """The target of one workload and preset. `samples` are about how many it takes, for the plan's estimate alone."""

    metric: Text
    threshold: float
    learning_rate: PositiveFloat | None = None  # None: the workload's own
    samples: PositiveInt | None = None


class TargetRules(Frozen):
    """The quality that trainings are to reach on samples that they never see, and how they go there."""

    goals: dict[Text, dict[Text, Goal]] = {}  # workload -> preset -> goal
    metric: Text | None = None  # of all workloads, instead of their goals'
    threshold: float | None = None
    held_out: float = option(..., "Share of the samples that is held out.", gt=0, lt=1)
    evaluate_samples: PositiveInt = option(..., "Samples between two evaluations, rounded to whole steps.")
    max_seconds: Duration = option(..., "Time limit per training, its evaluations included.", ge=1)
    max_samples: PositiveInt | None = option(None, "Limit of samples per training.", given=True)
    learning_rate: PositiveFloat | None = option(None, "Learning rate of 1 rank, of all workloads.")
    learning_rate_scaling: LearningRateScaling = option("none", "Growth of the rate with the global batch.")
    warm_up_samples: NonNegativeInt = option(0, "Samples over which the rate rises.", given=True)
    decay_samples: Milestones = option([], "Samples after which the rate is a tenth, each time.", given=True)
    optimizer: Literal["workload"] | OptimizerName = option(
        "workload", "Optimizer: the workload's own, or one by name, with a learning rate.", given=True
    )
    momentum: Momentum | None = option(None, "Momentum of optimizer sgd; default: 0.", given=True)

    @property
    def rule(self) -> OptimizerRule | None:
        """The optimizer by name; None: the networks' own. Raises ValueError for a momentum that it has not."""
        if self.optimizer == "workload":
            return None
        return optimizer_rule(self.optimizer, momentum=self.momentum)

    @model_validator(mode="after")
    def _check(self) -> TargetRules:
        if self.rule and not self.learning_rate:
            raise ValueError(f"optimizer {self.optimizer} needs a learning rate; set target.learning_rate")
        if self.momentum is not None and not self.rule:
            raise ValueError(f"momentum {self.momentum:g} needs an optimizer by name; give one, e.g. sgd")
        return self

    def of_cell(self, workload: Workload, preset: Preset, *, global_batch: int, base_batch: int) -> Target:
        """The target of a cell with that global batch; learning rates are given for `base_batch`, that of 1 rank.

        Raises UsageError for a metric that the workload has not, and a threshold that it cannot reach.
        """
        goal, metrics = self.goals.get(workload.name, {}).get(preset.name), workload.quality().METRICS
        metric, threshold = self.metric or (goal.metric if goal else None), self.threshold
        if threshold is None and goal and metric == goal.metric:
            threshold = goal.threshold
        if metric is None or metric not in metrics or threshold is None:
            named = "no target" if metric in (None, *metrics) else f"no metric {metric!r}"
            raise UsageError(
                f"{workload.name} with preset {preset.name} has {named}; give --target METRIC=THRESHOLD, of: "
                f"{', '.join(metrics)}"
            )
        limits = metrics[metric]
        if not limits.least <= threshold <= limits.most:
            raise UsageError(
                f"--target {metric}={threshold:g} can never be reached: {limits.text} lies between {limits.least:g} "
                f"and {limits.most:g}"
            )
        rate = self.learning_rate or (goal and goal.learning_rate) or preset.learning_rate
        growth = global_batch / base_batch
        schedule = RateSchedule(
            first_rate=rate, warm_up_samples=self.warm_up_samples, decay_samples=self.decay_samples
        )
        return Target(
            metric=metric, threshold=threshold, held_out=self.held_out, max_seconds=self.max_seconds,
            max_samples=self.max_samples, evaluate_every=max(1, round(self.evaluate_samples / global_batch)),
            learning_rate=rate * {"none": 1, "linear": growth, "sqrt": math.sqrt(growth)}[self.learning_rate_scaling],
            scaling=self.learning_rate_scaling, optimizer=self.rule,
            schedule=schedule if self.warm_up_samples or self.decay_samples else None,
        )  # fmt: skip

    def check_held_out(self, workload: Workload, preset: Preset, source: Input, *, needed: int) -> None:
        """Returns if some samples are held out and `needed` others remain. Raises UsageError."""
        if source.synthetic:
            raise UsageError(
                f"{workload.name} on synthetic tensors: there is nothing to learn; give --data, or leave it out"
            )
        num_samples = workload.num_samples(source, preset)
        num_held_out = len(held_out_samples(num_samples, share=self.held_out))
        if not num_held_out or num_samples - num_held_out < needed:
            raise UsageError(
                f"{source.path}: of {num_samples} samples a share of {self.held_out:g} holds out {num_held_out} and "
                f"leaves {num_samples - num_held_out} to train on; both parts are needed, and one global batch of "
                f"{needed}: give more samples or another share"
            )
