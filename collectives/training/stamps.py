"""What is known of a step that was stamped: when its parts were done. Each framework's trainer is in a file beside.

A stamp says when an exchange could have begun: in torch when the gradient was accumulated, in TensorFlow when an
operation that waits for it was run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dlscale.collectives.backend import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStamps:
    """One step; seconds from its start."""

    fetched: float  # the local batch is there
    forward: Sequence[float]  # ends of forward passes
    backward: Sequence[float]  # ends of the backward passes that follow each
    ready: Sequence[float]  # each gradient is complete, in the order of `Replica.names`
    end: float  # of the update and the step


class StampedTrainer(Trainer, Protocol):
    """A trainer of one rank alone that can stamp steps; `step` takes one without stamps."""

    @property
    def settling_steps(self) -> int:
        """Stamped steps before stamps say when, not when the framework had time for them."""

    def stamped_step(self) -> StepStamps:
        """Train on one local batch, with stamps."""
