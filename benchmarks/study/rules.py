"""A study's [rules], and those that are the same in every study."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from dlscale.base.definitions import Frozen, where_given

Steps = Annotated[NonNegativeInt, Field(le=10**12)]
PositiveSteps = Annotated[PositiveInt, Field(le=10**12)]

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
    """Lengths of warm-up and measurement per case; from the study's [rules]."""

    warmup_steps: PositiveSteps = option(10, "Minimum steps before the first window.")
    min_windows: PositiveSteps = option(10, "Minimum windows per case.")
    min_window_seconds: NonNegativeFloat = option(0.15, "Minimum length of a window.", allow_inf_nan=False)
    min_steps: PositiveSteps = option(20, "Minimum steps per case, over all windows.")
    max_steps: PositiveSteps = option(5000, "Maximum steps per case, warm-up included.")
    checkpoint_every: Steps = option(
        0, "Steps between checkpoints, which are saved at the next end of a window; 0: never."
    )

    @property
    def longest_warm_up(self) -> int:
        """Maximum steps of a warm-up, steady or not."""
        return max(self.warmup_steps, MOST_WARM_UP)

    @model_validator(mode="after")
    def _warm_up_leaves_enough(self) -> Rules:
        left, needed = self.max_steps - self.longest_warm_up, max(self.min_steps, self.min_windows)
        if left < needed:
            raise ValueError(
                f"a warm-up of up to {self.longest_warm_up} steps leaves {max(left, 0)} of max_steps = "
                f"{self.max_steps}, but {needed} must be measured; shorten the warm-up or raise max_steps"
            )
        return self
