"""Optimizers by name, in the place of a network's own, and how their rate changes; no framework is needed.

Per parameter: w its weights, g its gradient (the mean over ranks), u its momentum; m the momentum's coefficient.

    sgd    u <- m u + g                        w <- w - rate u
    adam   algorithm 1 of Kingma & Ba 2015, arXiv:1412.6980, with its defaults, as in torch

The rate stays outside the momentum, so that a changed one holds for all of it at once: the momentum correction of
Goyal et al. 2017, arXiv:1706.02677, section 3, is for updates that keep the rate inside, and has nothing to do here.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Annotated, Literal, get_args

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from dlscale.base.definitions import Frozen

OptimizerName = Literal["sgd", "adam"]
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)
BETAS, ADAM_EPSILON = (0.9, 0.999), 1e-8
DECAY_FACTOR = 0.1

Momentum = Annotated[float, Field(ge=0, lt=1)]


class OptimizerRule(Frozen):
    """An optimizer by name with all that its update depends on, but for the learning rate."""

    name: OptimizerName
    momentum: Momentum | None = None  # None: it has no such term

    @property
    def num_slots(self) -> int:
        """Numbers that it keeps of each weight."""
        return 2 if self.name == "adam" else int(bool(self.momentum))


def optimizer_rule(name: OptimizerName, *, momentum: float | None = None) -> OptimizerRule:
    """The rule of that name; momentum None is 0 for sgd. Raises ValueError for one with Adam."""
    if name == "adam":
        if momentum is not None:
            raise ValueError("optimizer adam has no momentum; leave it out, or choose sgd")
        return OptimizerRule(name=name)
    return OptimizerRule(name=name, momentum=momentum or 0.0)


class RateSchedule(Frozen):
    """How the learning rate changes with the samples that were trained on, over all ranks, before a step.

    Gradual warm-up: P. Goyal et al. 2017, arXiv:1706.02677, section 2.2. From `first_rate`, that of 1 rank, it rises
    linearly to the full rate, which the first step after `warm_up_samples` has. From each of `decay_samples` on it is
    a tenth of that before (section 5.1 there: at epochs 30, 60, 80).
    """

    first_rate: Annotated[PositiveFloat, Field(allow_inf_nan=False)]
    warm_up_samples: NonNegativeInt = 0
    decay_samples: list[PositiveInt] = []

    @field_validator("decay_samples")
    @classmethod
    def _check_order(cls, value: list[int]) -> list[int]:
        return check_ascending(value)

    def rate(self, full_rate: float, samples: int) -> float:
        """The rate of the step that begins after so many samples."""
        if samples < self.warm_up_samples:
            rate = self.first_rate + (full_rate - self.first_rate) * samples / self.warm_up_samples
        else:
            rate = full_rate
        return rate * DECAY_FACTOR ** bisect_right(self.decay_samples, samples)


def check_ascending(milestones: list[int]) -> list[int]:
    """Returns the milestones if each is larger than the one before. Raises ValueError."""
    if any(later <= earlier for earlier, later in pairwise(milestones)):
        text = ",".join(map(str, milestones))
        raise ValueError(
            f"{text} are not in ascending order; give each number of samples once, the least first"
        )
    return milestones
