"""The record of control `profile`: when, within the steps of one rank without communication, what is done.

Every time counts from the start of its step, in seconds. Half of the steps carry stamps, and the other half, taken
between them, says what the stamps cost.
"""

from __future__ import annotations

from itertools import chain
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.strings import Text

MIN_PROFILED_STEPS = 200  # with stamps, and as many without
Seconds = Annotated[list[PositiveFloat], Field(min_length=1)]  # of whole steps


class Quantiles(Frozen):
    """One moment over the stamped steps: 5 %, the median, 95 %."""

    low: NonNegativeFloat
    median: NonNegativeFloat
    high: NonNegativeFloat


class GradientReady(Frozen):
    """One tensor of gradients, and when backpropagation had completed it."""

    name: Text
    num_bytes: PositiveInt
    ready: Quantiles


class SecondBatch(Frozen):
    """Whole steps of another local batch, taken after all others: they tell what a step costs whatever its batch."""

    local_batch: PositiveInt
    seconds: Seconds


class StepProfile(Frozen):
    """The steps of a rank over backend `none`; gradients are in the order in which they were completed.

    `forward` and `backward` are the ends of the passes: of each objective in turn in torch, of all together in
    TensorFlow. The update is the rest of the step.
    """

    fetched: Quantiles  # the local batch is there
    forward: Annotated[list[Quantiles], Field(min_length=1)]
    backward: Annotated[list[Quantiles], Field(min_length=1)]
    update: Quantiles  # its length
    gradients: Annotated[list[GradientReady], Field(min_length=1)]
    stamped_seconds: Seconds
    plain_seconds: Seconds  # without stamps, taken between those
    second: SecondBatch | None = where_given(None)

    @model_validator(mode="after")
    def _in_order(self) -> StepProfile:
        if len(self.forward) != len(self.backward):
            raise ValueError("a profile has as many ends of forward as of backward passes")
        passes = [end.median for end in chain(*zip(self.forward, self.backward, strict=True))]
        ready = [gradient.ready.median for gradient in self.gradients]
        for moments in ([self.fetched.median, *passes], ready):
            if moments != sorted(moments):
                raise ValueError(f"what a profile has one after the other is not at {moments}")
        return self
