"""A node's profile: when, within one step of one undisturbed rank, each gradient is ready, and how steps vary."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dlscale.analysis.predict.network import Limits
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.prediction import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """One tensor of gradients. `ready_seconds` are counted from the start of the step."""

    name: str
    num_bytes: int
    ready_seconds: float
    objective: int = 0  # its place among those that torch differentiates one after the other


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedStep:
    """What one rank computes in a step, in seconds from its start."""

    backward_seconds: float  # end of backward
    update_seconds: float  # the length of the optimizer's update, which follows backward and exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(ComputedStep):
    """One rank's step without communication; all times are seconds from the start of the step.

    `gradients` are in the order in which backpropagation completes them. `step_seconds` are whole steps as they
    varied, at least 200 if measured; a single one if the profile is derived from a published rate.
    """

    workload: str
    preset: str
    framework: str
    local_batch: int
    forward_seconds: float  # end of forward
    gradients: tuple[Gradient, ...]
    step_seconds: tuple[float, ...]
    # Of `backward_seconds`, what a step takes whatever its batch: calls of a framework, launches of kernels.
    fixed_seconds: float = 0.0
    fixed_factors: Limits = (1.0, 1.0)  # the least and the most of it
    evidence: str  # measured, published, stated by a user, or derived from what is published of others
    source: str  # the study and cell, or the publication
    origins: tuple[Origin, ...] = ()
    # Coefficients of variation of steps, the lowest and the highest that sources give, where steps were not measured.
    variation: Limits = (0.0, 0.0)
    # The least and the most that computing takes, as factors on the profile's times, where no source has one value.
    time_factors: Limits = (1.0, 1.0)
    # Samples that a step computes at least as long as, at least and at most: with fewer, cores have nothing to do.
    least_batch: Limits = (1.0, 1.0)

    @property
    def num_bytes(self) -> int:
        """Of all gradients, in float32."""
        return sum(gradient.num_bytes for gradient in self.gradients)

    @property
    def mean_step_seconds(self) -> float:
        """The mean of `step_seconds`."""
        return sum(self.step_seconds) / len(self.step_seconds)

    @property
    def fixed_share(self) -> float:
        """Of the time of both passes, over which it is spread evenly, what does not depend on the batch."""
        return min(1.0, self.fixed_seconds / self.backward_seconds)


def checked(profile: Profile) -> Profile:
    """The profile itself. Raises UsageError for one that nothing can be predicted from."""
    times = (profile.forward_seconds, profile.backward_seconds, profile.update_seconds, *profile.step_seconds)
    ready = [gradient.ready_seconds for gradient in profile.gradients]
    problem = ""
    if not profile.gradients:
        problem = "no layers, so nobody knows when gradients are ready"
    elif not profile.step_seconds or not all(0 <= seconds < math.inf for seconds in (*times, *ready)):
        problem = "a time that is negative, infinite or missing"
    elif profile.backward_seconds <= 0 or min(profile.step_seconds) <= 0:
        problem = "steps that take no time"
    elif not 0 <= profile.fixed_seconds <= profile.backward_seconds:
        problem = "a fixed cost that is no part of its step"
    elif any(gradient.num_bytes <= 0 for gradient in profile.gradients):
        problem = "a gradient of no bytes"
    if problem:
        raise UsageError(f"the profile of {profile.source} has {problem}")
    return profile


def at_batch(profile: Profile, local_batch: int) -> Profile:
    """The profile at another batch: computing in proportion to the samples, fixed cost and update as they are."""
    return replace(at_share(profile, local_batch / profile.local_batch), local_batch=local_batch)


def at_share(profile: Profile, share: float) -> Profile:
    """The profile of a rank with that share of the samples."""
    if share == 1:
        return profile
    update, fixed = profile.update_seconds, profile.fixed_share
    share = fixed + (1 - fixed) * share
    return replace(
        profile,
        forward_seconds=share * profile.forward_seconds,
        backward_seconds=share * profile.backward_seconds,
        gradients=tuple(
            replace(gradient, ready_seconds=share * gradient.ready_seconds) for gradient in profile.gradients
        ),
        step_seconds=tuple(update + share * max(0.0, step - update) for step in profile.step_seconds),
    )
