"""Control `profile`: every other step is stamped, so that the steps between say what the stamps cost.

The order is plain, stamped, stamped, plain: what drifts over some steps is the same for both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from dlscale.benchmarks.records.profile import (
    MIN_PROFILED_STEPS,
    GradientReady,
    Quantiles,
    StepProfile,
)
from dlscale.benchmarks.records.record import Gate
from dlscale.benchmarks.study.rules import Rules
from dlscale.collectives.training.stamps import StampedTrainer, StepStamps

ROUND = (False, True, True, False)  # which steps of a round are stamped
PLAIN = 5  # first steps of the warm-up
LONGEST = 2  # times the fewest steps: windows of short steps have more


def profile_rules(rules: Rules, trainer: StampedTrainer) -> Rules:
    """The rules for as many steps as a profile of that trainer has, however many the study asks for."""
    fewest = 2 * MIN_PROFILED_STEPS
    rules = rules.model_copy(update={"warmup_steps": max(rules.warmup_steps, PLAIN + trainer.settling_steps)})
    return rules.model_copy(
        update={"min_steps": fewest, "max_steps": rules.longest_warm_up + LONGEST * fewest}
    )


class ProfiledSteps:
    """A trainer whose steps are stamped or not by turns (`measure.Steppable`, and `measure.Audit` of its warm-up)."""

    def __init__(self, trainer: StampedTrainer) -> None:
        self._trainer, self._num_steps, self._warm = trainer, 0, False
        self._stamps: list[StepStamps] = []
        self._plain: list[float] = []

    def step(self) -> None:
        """Train on one local batch; in the warm-up without stamps, then with them until they have settled."""
        if ROUND[self._num_steps % len(ROUND)] if self._warm else self._num_steps >= PLAIN:
            self._stamps.append(self._trainer.stamped_step())
        else:
            begin = time.perf_counter()
            self._trainer.step()
            self._plain.append(time.perf_counter() - begin)
        self._num_steps += 1

    def synchronize(self) -> None:
        """Nothing outlasts a step."""
        self._trainer.synchronize()

    def warmed_up(self) -> None:
        """A round begins, and what was kept is dropped."""
        self._warm, self._num_steps = True, 0
        self._stamps.clear()
        self._plain.clear()

    def begin(self, num_windows: int) -> None:
        """Nothing to prepare."""

    def before(self, window: int) -> None:
        """Nothing to look at."""

    def after(self, window: int) -> None:
        """Nothing to look at."""

    def end(self) -> None:
        """Nothing to look at."""

    def profile(self, names: Sequence[str], sizes: Sequence[int]) -> StepProfile:
        """The profile over all steps after the warm-up; names and bytes of gradients are in the replica's order."""
        steps = self._stamps
        ready = [_quantiles(moments) for moments in zip(*(step.ready for step in steps), strict=True)]
        gradients = [
            GradientReady(name=name, num_bytes=size, ready=moments)
            for name, size, moments in zip(names, sizes, ready, strict=True)
        ]
        return StepProfile(
            fetched=_quantiles([step.fetched for step in steps]),
            forward=[_quantiles(ends) for ends in zip(*(step.forward for step in steps), strict=True)],
            backward=[_quantiles(ends) for ends in zip(*(step.backward for step in steps), strict=True)],
            update=_quantiles([step.end - step.backward[-1] for step in steps]),
            gradients=sorted(gradients, key=lambda gradient: gradient.ready.median),
            stamped_seconds=[step.end for step in steps],
            plain_seconds=list(self._plain),
        )


def profile_gate(profile: StepProfile, gradient_bytes: int) -> Gate:
    """Whether the stamped gradients are all that a step exchanges, which is `gradient_bytes`."""
    stamped = sum(gradient.num_bytes for gradient in profile.gradients)
    return Gate(
        name="profile_bytes",
        passed=stamped == gradient_bytes,
        value=float(abs(stamped - gradient_bytes)),
        tolerance=0.0,
        detail=f"bytes between the {stamped} of the stamped gradients and the {gradient_bytes} of all",
    )


def _quantiles(moments: Sequence[float]) -> Quantiles:
    low, median, high = np.quantile(np.asarray(moments, np.float64), (0.05, 0.5, 0.95)).tolist()
    return Quantiles(low=low, median=median, high=high)
