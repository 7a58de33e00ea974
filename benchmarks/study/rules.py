"""The tables of a study's file beside its target: [rules], [tuning] and [choice]."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from dlscale.base.definitions import Frozen
from dlscale.base.quantities import Duration, split_list
from dlscale.benchmarks.study.tuned import Rate

Steps = Annotated[NonNegativeInt, Field(le=10**12)]
PositiveSteps = Annotated[PositiveInt, Field(le=10**12)]


SHORT_CONTROL_SECONDS = 0.6  # an estimate of what a short control takes
MOST_LAUNCHES = 10_000
NumLaunches = Annotated[PositiveInt, Field(le=MOST_LAUNCHES)]
DataFormat = Literal["folders", "tfrecord", "lmdb", "list"]


def _formats(value: Any) -> Any:
    names = split_list(value) if isinstance(value, str) else value
    return list(get_args(DataFormat)) if names == ["all"] else names


def _grid(value: Any) -> Any:
    """The learning rates between `|` in ascending order. Raises ValueError for fewer than two."""
    if not isinstance(value, str):
        return value
    try:
        rates = sorted(float(word) for word in value.split("|"))
    except ValueError:
        raise ValueError(f"{value!r} is not a grid of numbers; write e.g. 0.0005|0.001|0.002") from None
    if wrong := [rate for rate in rates if not 0 < rate < math.inf]:
        raise ValueError(f"{value!r} has {wrong[0]:g}, which no training can use; give numbers above 0")
    if len(rates) < 2:
        raise ValueError(f"{value!r} is one rate, and a search needs two or more")
    if twice := [rate for rate, following in pairwise(rates) if rate == following]:
        raise ValueError(f"{value!r} has {twice[0]:g} twice; give each once")
    return rates


class Rules(Frozen):
    """Lengths of warm-up and measurement per case; from the study's [rules]."""

    warmup_steps: PositiveSteps = Field(10, description="Minimum steps before the first window.")
    max_warmup_steps: PositiveSteps = Field(40, description="Maximum steps of the warm-up.")
    min_windows: PositiveSteps = Field(10, description="Minimum windows per case.")
    min_window_seconds: NonNegativeFloat = Field(
        0.15, allow_inf_nan=False, description="Minimum length of a window."
    )
    min_steps: PositiveSteps = Field(20, description="Minimum steps per case, over all windows.")
    max_steps: PositiveSteps = Field(5000, description="Maximum steps per case, warm-up included.")
    max_windows: PositiveSteps = Field(200, description="Maximum windows per case.")
    train_steps: Steps = Field(
        0,
        description="Steps of each training, over as many launches as needed, regardless of the budget and max_steps; "
        "0: as many as the windows need.",
    )
    checkpoint_every: Steps = Field(
        0,
        description="Steps between checkpoints of a training, which are saved at the next end of a window; 0: never.",
    )
    stall_seconds: PositiveFloat = Field(
        300.0, allow_inf_nan=False, description="Time without a heartbeat from any rank that ends a launch."
    )

    @property
    def has_training_run(self) -> bool:
        """Whether trainings have a fixed length or checkpoints."""
        return bool(self.train_steps or self.checkpoint_every)

    @property
    def longest_warm_up(self) -> int:
        """Maximum steps of a warm-up, steady or not."""
        return max(self.warmup_steps, self.max_warmup_steps)

    @model_validator(mode="after")
    def _warm_up_leaves_enough(self) -> Rules:
        left, needed = self.max_steps - self.longest_warm_up, max(self.min_steps, self.min_windows)
        if left < needed:
            raise ValueError(
                f"a warm-up of up to {self.longest_warm_up} steps leaves {max(left, 0)} of max_steps = "
                f"{self.max_steps}, but {needed} must be measured; shorten the warm-up or raise max_steps"
            )
        return self


class TuningRules(Frozen):
    """A study's [tuning]: learning rates are searched before its trainings, or instead of them."""

    only: bool = Field(
        False, description="The search alone, without the trainings at the rates that it finds."
    )
    learning_rates: Annotated[list[Rate], BeforeValidator(_grid)] = Field(
        [],
        description="Grid of learning rates of 1 rank; default: the study's, or 1/4 to 4 times the workload's own or "
        "target.learning_rate.",
    )
    num_rates: int | None = Field(
        None, ge=2, description="Rates of each grid to try, from its middle; default: all."
    )
    launches: NumLaunches | None = Field(
        None, description="Trainings at each rate of the search; default: the study's launches."
    )
    every_backend: bool = False  # backends are searched one by one, also where their updates are the same


class ChoiceRules(Frozen):
    """A study's [choice]: its records answer which framework to use here."""

    losses: bool = Field(True, description="Trainings to a target beside the measurements of speed.")
    job_limit: Duration = Field(
        1800.0, description="Wall time of a job, of which start and checkpoint take a share."
    )
    formats: Annotated[list[DataFormat], BeforeValidator(_formats)] = Field(
        [], description="Formats that the images of --data are repackaged in, timed and read, or all."
    )
