"""A study's [rules]."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from dlscale.base.definitions import Frozen

Steps = Annotated[NonNegativeInt, Field(le=10**12)]
PositiveSteps = Annotated[PositiveInt, Field(le=10**12)]


SHORT_CONTROL_SECONDS = 0.6  # an estimate of what a short control takes
MOST_LAUNCHES = 10_000
NumLaunches = Annotated[PositiveInt, Field(le=MOST_LAUNCHES)]


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
