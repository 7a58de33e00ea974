"""A node's profile: when, within one step of one undisturbed rank, each gradient is ready, and how steps vary."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """One tensor of gradients. `ready_seconds` are counted from the start of the step."""

    name: str
    num_bytes: int
    ready_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One rank's step without communication; all times are seconds from the start of the step.

    `gradients` are in the order in which backpropagation completes them. `step_seconds` are whole steps as they
    varied, at least 200 if measured; a single one if the profile is derived from a published rate.
    """

    workload: str
    preset: str
    framework: str
    local_batch: int
    forward_seconds: float  # end of forward
    backward_seconds: float  # end of backward
    update_seconds: float  # the length of the optimizer's update, which follows backward and exchange
    gradients: tuple[Gradient, ...]
    step_seconds: tuple[float, ...]
    evidence: str  # measured or published
    source: str  # the study and cell, or the publication
    derived: tuple[str, ...] = ()  # what of it is not measured but derived, in words
