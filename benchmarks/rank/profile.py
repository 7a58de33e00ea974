"""Control `profile`: every other step is stamped, so that the steps between say what the stamps cost.

The order is plain, stamped, stamped, plain: what drifts over some steps is the same for both. Steps of a
second batch follow: between two, what a step costs beside its samples can be told from what these cost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

import numpy as np

from dlscale.benchmarks.rank.case import ELEMENT_BYTES, CaseRun
from dlscale.benchmarks.rank.gates import training_gates
from dlscale.benchmarks.rank.measure import measure
from dlscale.benchmarks.records.record import (
    MIN_PROFILED_STEPS,
    Gate,
    GradientReady,
    Quantiles,
    SecondBatch,
    StepProfile,
)
from dlscale.benchmarks.study.rules import Rules
from dlscale.collectives.backend import StampedTrainer, StepStamps
from dlscale.collectives.none import NoneBackend

ROUND = (False, True, True, False)  # which steps of a round are stamped
PLAIN = 5  # first steps of the warm-up
LONGEST = 2  # times the fewest steps: windows of short steps have more
TIMES = 4  # between both batches
SECOND_STEPS, SECOND_SECONDS = 100, 3.0  # of the second one, whichever is over first


def profile_rules(rules: Rules, trainer: StampedTrainer) -> Rules:
    """The rules for as many steps as a profile of that trainer has, however many the study asks for."""
    fewest = 2 * MIN_PROFILED_STEPS
    rules = rules.model_copy(update={"warmup_steps": max(rules.warmup_steps, PLAIN + trainer.settling_steps)})
    return rules.model_copy(
        update={"min_steps": fewest, "max_steps": rules.longest_warm_up + LONGEST * fewest}
    )


def measure_profile(case: CaseRun) -> list[Gate]:
    """Time and stamp a training of one rank alone; its windows have both kinds of steps (`case.Measurement`)."""
    context = case.context
    distribute = cast(NoneBackend, context.backend).distribute
    with case.trainer(distribute) as (trainer, (replica,)):
        steps = ProfiledSteps(trainer)
        steady = measure(
            steps,
            context.control,
            profile_rules(context.spec.rules, trainer),
            deadline=case.deadline,
            budgeted=context.spec.budgeted,
            emit=case.emit,
            passed=steps.passed,
            round_steps=len(ROUND),
        )
        sizes = [weight.size * ELEMENT_BYTES for weight in replica.weights()]
        profile = steps.profile(replica.names(), sizes).model_copy(update={"second": _measure_second(case)})
        case.end(
            steady=steady,
            settings=trainer.settings(),
            skipped_samples=replica.num_skipped(),
            profile=profile,
        )
        return training_gates(context.backend, trainer, control=context.world)


def _measure_second(case: CaseRun) -> SecondBatch:
    """Steps of another batch: a smaller one, but of 2 samples or more, as batch norm needs them."""
    context, own = case.context, case.cell.local_batch
    batch = own // TIMES if own >= 2 * TIMES else TIMES * own
    factory = context.spec.factory(case.cell.model_copy(update={"local_batch": batch, "global_batch": batch}))
    trainer = context.backend.distribute(factory, shard=context.shard, seed=context.seed)
    try:
        for _ in range(2 * PLAIN):
            trainer.step()
        seconds: list[float] = []
        while len(seconds) < SECOND_STEPS and (sum(seconds) < SECOND_SECONDS or len(seconds) < PLAIN):
            begin = time.perf_counter()
            trainer.step()
            trainer.synchronize()
            seconds.append(time.perf_counter() - begin)
    finally:
        trainer.close()
    return SecondBatch(local_batch=batch, seconds=seconds)


class ProfiledSteps:
    """A trainer whose steps are stamped or not by turns (`measure.Steppable`, and told when the warm-up is over)."""

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
        self._trainer.synchronize()

    def passed(self, num_steps: int) -> None:  # noqa: ARG002
        """Steps are over. After those of the warm-up a round begins, and what was kept is dropped."""
        if not self._warm:
            self._warm, self._num_steps = True, 0
            self._stamps.clear()
            self._plain.clear()

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


def _quantiles(moments: Sequence[float]) -> Quantiles:
    low, median, high = np.quantile(np.asarray(moments, np.float64), (0.05, 0.5, 0.95)).tolist()
    return Quantiles(low=low, median=median, high=high)
