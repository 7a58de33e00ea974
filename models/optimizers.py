"""Optimizers by name, in the place of a network's own, and how their rate and batch change; no framework is needed.

Per parameter: w its weights, g its gradient (the mean over ranks), u its momentum, |x| the Euclidean norm over all of
its elements; m the momentum's coefficient, d the weight decay (0 where `weights.decays` says so), e the trust
coefficient, r the ratio by which layer-wise rules scale a gradient.

    sgd    u <- m u + (g + d w)                w <- w - rate u
    lars   u <- m u + r (g + d w)              w <- w - rate u      r = e |w| / (|g| + d |w|)
    larc   likewise                                                 r = min(1, e |w| / (|g| + d |w|) / rate)
    adam   algorithm 1 of Kingma & Ba 2015, arXiv:1412.6980, with its defaults, as in torch: no weight decay

LARS: You, Gitman, Ginsburg 2017, arXiv:1708.03888, algorithm 1. LARC: NVIDIA Apex, `apex.parallel.LARC` with `clip`
around SGD: no layer learns faster than with `rate`. Both have r = 1 where |w| or |g| is 0, as Apex: biases begin with
0, and would stay there. EPSILON joins the sum that is divided by, as in Apex.

Momentum correction (Goyal et al. 2017, arXiv:1706.02677, section 3, remark 2) is for updates that keep the rate inside
the momentum, v <- m v + rate g, w <- w - v: there v has to be multiplied by (new rate / old rate) when the rate
changes, or it goes on with the old one. With v = rate u that is the update above, which keeps the rate outside. All
optimizers here have that form, LARS too (its paper has v), so that a changed rate holds for the whole momentum at once
and there is nothing to correct: a test compares both forms (tests/models/test_optimizers.py).
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Annotated, Literal, get_args

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from dlscale.base.definitions import Frozen

OptimizerName = Literal["sgd", "adam", "lars", "larc"]
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)
LAYERWISE: tuple[OptimizerName, ...] = ("lars", "larc")
EPSILON = 1e-8  # of layer-wise ratios
BETAS, ADAM_EPSILON = (0.9, 0.999), 1e-8

Momentum = Annotated[float, Field(ge=0, lt=1)]
Decay = Annotated[NonNegativeFloat, Field(allow_inf_nan=False)]
Trust = Annotated[PositiveFloat, Field(allow_inf_nan=False)]

# What each has if nothing else is asked for; what is not here it does not take.
DEFAULTS: dict[OptimizerName, dict[str, float]] = {
    "sgd": {"momentum": 0.0, "weight_decay": 0.0},
    "adam": {},
    "lars": {"momentum": 0.9, "weight_decay": 5e-4, "trust_coefficient": 1e-3},  # the paper's
    "larc": {"momentum": 0.9, "weight_decay": 0.0, "trust_coefficient": 0.02},  # trust: Apex's default
}


class OptimizerRule(Frozen):
    """An optimizer by name with all that its update depends on, but for the learning rate."""

    name: OptimizerName
    momentum: Momentum | None = None  # None: it has no such term
    weight_decay: Decay | None = None
    trust_coefficient: Trust | None = None

    @property
    def num_slots(self) -> int:
        """Numbers that it keeps of each weight."""
        return 2 if self.name == "adam" else int(bool(self.momentum))


def optimizer_rule(name: OptimizerName, **asked: float | None) -> OptimizerRule:
    """The rule of that name with `asked` where it is not None. Raises ValueError for what the rule does not take."""
    defaults = DEFAULTS[name]
    given = {term: value for term, value in asked.items() if value is not None}
    for term in given:
        if term not in defaults:
            fitting = ", ".join(other for other in OPTIMIZERS if term in DEFAULTS[other])
            raise ValueError(f"optimizer {name} has no {term}; leave it out, or choose one of: {fitting}")
    return OptimizerRule(name=name, **defaults | given)


class RateSchedule(Frozen):
    """How the learning rate changes with the samples that were trained on, over all ranks, before a step.

    Gradual warm-up: P. Goyal et al. 2017, arXiv:1706.02677, section 2.2. From `first_rate`, that of 1 rank, it rises
    linearly to the full rate, which the first step after `warm_up_samples` has. From each of `decay_samples` on it is
    multiplied by `decay_factor` (section 5.1 there: 1/10 at epochs 30, 60, 80).
    """

    first_rate: Trust
    warm_up_samples: NonNegativeInt = 0
    decay_samples: list[PositiveInt] = []
    decay_factor: Annotated[float, Field(gt=0, lt=1)] = 0.1

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
        return rate * self.decay_factor ** bisect_right(self.decay_samples, samples)


class BatchGrowth(Frozen):
    """How the batch grows in the place of a falling learning rate: S. Smith et al. 2018, arXiv:1711.00489.

    From each of `samples` on, which were trained on over all ranks, every local batch is multiplied by `factor`.
    """

    samples: Annotated[list[PositiveInt], Field(min_length=1)]
    factor: Annotated[int, Field(ge=2)] = 5  # theirs, for rates that would fall to a fifth (section 5)

    @field_validator("samples")
    @classmethod
    def _check_order(cls, value: list[int]) -> list[int]:
        return check_ascending(value)

    def multiple(self, samples: int) -> int:
        """By how much the batch is larger than at first, of the step that begins after so many samples."""
        return int(self.factor ** bisect_right(self.samples, samples))

    def position(self, step: int, global_batch: int) -> int:
        """Samples before that step (the first is 0), where the first steps have `global_batch`."""
        passed, left = 0, step
        for milestone in self.samples:
            batch = global_batch * self.multiple(passed)
            if passed >= milestone:
                continue
            needed = -(-(milestone - passed) // batch)
            if left <= needed:
                return passed + left * batch
            passed, left = passed + needed * batch, left - needed
        return passed + left * global_batch * self.multiple(passed)


def check_ascending(milestones: list[int]) -> list[int]:
    """Returns the milestones if each is larger than the one before. Raises ValueError."""
    if any(later <= earlier for earlier, later in pairwise(milestones)):
        text = ",".join(map(str, milestones))
        raise ValueError(
            f"{text} are not in ascending order; give each number of samples once, the least first"
        )
    return milestones
