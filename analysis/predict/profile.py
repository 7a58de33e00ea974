"""A node's profile: when, within one step of one undisturbed rank, each gradient is ready, and how steps vary."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlscale.base.errors import UsageError

SOURCES = "; sources: "  # of a profile's source, behind what it says


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
    fixed_factors: tuple[float, float] = (1.0, 1.0)  # the least and the most of it
    evidence: str  # measured, published, stated by a user, or derived from what is published of others
    source: str  # the study and cell, or the publication
    derived: tuple[str, ...] = ()  # what of it is not measured but derived, in words
    # Coefficients of variation of steps, the lowest and the highest that sources give, where steps were not measured.
    variation: tuple[float, float] = (0.0, 0.0)
    # The least and the most that computing takes, as factors on the profile's times, where no source has one value.
    time_factors: tuple[float, float] = (1.0, 1.0)
    # Samples that a step computes at least as long as, at least and at most: with fewer, cores have nothing to do.
    least_batch: tuple[float, float] = (1.0, 1.0)
    # Coefficient of variation over ranks, of differences that last from launch to launch; None: not measured.
    rank_variation: float | None = None
    rank_variation_source: str = "a stored profile is of one rank"  # what it is from, or why there is none

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
    if not profile.gradients:
        raise UsageError(
            f"the profile of {profile.source} has no layers, so nobody knows when gradients are ready"
        )
    times = (profile.forward_seconds, profile.backward_seconds, profile.update_seconds, *profile.step_seconds)
    ready = [gradient.ready_seconds for gradient in profile.gradients]
    if not profile.step_seconds or not all(0 <= seconds < float("inf") for seconds in (*times, *ready)):
        raise UsageError(f"the profile of {profile.source} has a time that is negative, infinite or missing")
    if profile.backward_seconds <= 0 or min(profile.step_seconds) <= 0:
        raise UsageError(f"the profile of {profile.source} has steps that take no time")
    if not 0 <= profile.fixed_seconds <= profile.backward_seconds:
        raise UsageError(f"the profile of {profile.source} has a fixed cost that is no part of its step")
    if any(gradient.num_bytes <= 0 for gradient in profile.gradients):
        raise UsageError(f"the profile of {profile.source} has a gradient of no bytes")
    return profile


def at_batch(profile: Profile, local_batch: int) -> Profile:
    """The profile at another batch: computing in proportion to the samples, fixed cost and update as they are."""
    if local_batch == profile.local_batch:
        return profile
    ratio = local_batch / profile.local_batch
    return replace(
        at_share(profile, ratio),
        local_batch=local_batch,
        derived=(
            *profile.derived,
            f"steps of {local_batch} samples, in proportion from those of {profile.local_batch}",
        ),
    )


def at_share(profile: Profile, share: float) -> Profile:
    """The profile of a rank with that share of the samples: computing in proportion.

    Fixed cost and update are as they are.
    """
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
