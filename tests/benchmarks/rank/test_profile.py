"""Control `profile`: which steps are stamped, and what is kept of them."""

import dataclasses
import time

import pytest

from dlscale.benchmarks.rank.measure import measure
from dlscale.benchmarks.rank.profile import PLAIN, ROUND, ProfiledSteps, profile_rules
from dlscale.benchmarks.records.record import MIN_PROFILED_STEPS
from dlscale.benchmarks.study.rules import Rules
from dlscale.collectives.backend import StepStamps
from tests.benchmarks.rank.threads import ALONE

STAMPS = StepStamps(fetched=0.1, forward=[0.4], backward=[0.9], ready=[0.9, 0.5], end=1.0)


class Trainer:
    """Writes down which kind of step it took."""

    settling_steps = 7

    def __init__(self):
        self.steps = ""

    def step(self):
        self.steps += "p"

    def stamped_step(self):
        self.steps += "s"
        return dataclasses.replace(STAMPS, end=float(len(self.steps)))

    def synchronize(self):
        pass


def profiled(num_steps=4):
    trainer = Trainer()
    steps = ProfiledSteps(trainer)
    steps.passed(10)
    for _ in range(num_steps):
        steps.step()
    return steps.profile(["weight", "bias"], [400, 40])


def test_a_whole_profile_has_enough_steps_of_each_kind_and_none_of_the_warm_up():
    trainer, windows = Trainer(), []
    steps = ProfiledSteps(trainer)
    rules = profile_rules(Rules(min_window_seconds=0, max_steps=100), trainer)
    measure(
        steps,
        ALONE,
        rules,
        deadline=time.perf_counter(),
        emit=windows.append,
        passed=steps.passed,
        round_steps=len(ROUND),
    )
    num_warm = sum(window.phase == "warmup" for window in windows)
    warm, rest = trainer.steps[:num_warm], trainer.steps[num_warm:]
    assert warm == "p" * PLAIN + "s" * (num_warm - PLAIN)
    assert warm.count("s") >= trainer.settling_steps
    assert rest == "pssp" * (len(rest) // 4)
    profile = steps.profile(["weight", "bias"], [400, 40])
    assert len(profile.stamped_seconds) == len(profile.plain_seconds) == len(rest) // 2
    assert MIN_PROFILED_STEPS <= len(rest) // 2 <= 2 * MIN_PROFILED_STEPS
    assert min(profile.stamped_seconds) > num_warm


def test_gradients_are_in_the_order_in_which_they_were_completed():
    profile = profiled()
    assert [(each.name, each.num_bytes, each.ready.median) for each in profile.gradients] == [
        ("bias", 40, 0.5),
        ("weight", 400, 0.9),
    ]
    assert (profile.fetched.median, profile.forward[0].median, profile.backward[0].median) == (0.1, 0.4, 0.9)
    assert profile.update.median == pytest.approx(2.5 - 0.9)  # the steps ended at 2 and 3
