"""How many steps and windows a launch takes, by hand: the clock moves only when a step is taken.

All seconds are multiples of 1/64, so that they add up exactly.
"""

import itertools
from types import SimpleNamespace

import pytest

from dlscale.benchmarks.rank import measure
from dlscale.benchmarks.study import rules as study_rules
from dlscale.benchmarks.study.rules import Rules

STEP = 1 / 64
RULES = {
    "warmup_steps": 10,
    "min_windows": 4,
    "min_window_seconds": 4 * STEP,
    "min_steps": 8,
    "max_steps": 200,
}


class Clock:
    """A trainer, a control and a clock in one; the last of `step_seconds` is that of all further steps."""

    def __init__(self, step_seconds):
        self.now, self.num_steps = 128.0, 0
        self.step_seconds = itertools.chain(step_seconds, itertools.repeat(step_seconds[-1]))

    def step(self):
        self.now += next(self.step_seconds)
        self.num_steps += 1

    def num_applied(self):
        """Two ranks' steps."""
        return 2 * self.num_steps

    def synchronize(self):
        pass

    def barrier(self):
        pass

    def maximum(self, value):
        return value


@pytest.fixture
def run(monkeypatch):
    """(whether it became steady, warm-up steps, steps of each window)."""
    monkeypatch.setattr(study_rules, "MOST_WARM_UP", 20)
    monkeypatch.setattr(measure, "MOST_WINDOWS", 50)

    def run(
        *step_seconds,
        budget=0.0,
        budgeted=True,
        control=None,
        carries=False,
        round_steps=1,
        **rules,
    ):
        clock = Clock(step_seconds or [STEP])
        monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.now))
        windows = []
        steady = measure.measure(
            clock,
            control or clock,
            Rules(**RULES | rules),
            deadline=clock.now + budget,
            budgeted=budgeted,
            emit=windows.append,
            carries=carries,
            round_steps=round_steps,
        )
        num_warm_up = sum(window.phase == "warmup" for window in windows)
        assert {window.num_steps for window in windows[:num_warm_up]} == {1}
        return steady, num_warm_up, [window.num_steps for window in windows[num_warm_up:]]

    return run


@pytest.mark.parametrize(
    ("steps_left", "num_windows"),
    [(0, 4), (19, 4), (20, 5), (39, 9), (40, 10), (179, 44), (180, 45), (10_000, 45)],
)
def test_windows_are_as_many_as_fit_into_the_budget_and_into_the_most_steps(run, steps_left, num_windows):
    assert run(budget=(10 + steps_left) * STEP) == (True, 10, [4] * num_windows)


def test_without_a_budget_windows_are_the_fewest_however_much_time_is_left(run):
    assert run(budget=1000.0, budgeted=False) == (True, 10, [4] * 4)


@pytest.mark.parametrize(
    ("rules", "windows"),
    [
        ({"max_steps": 10_000}, [4] * 50),  # as many as a case may have
        ({"min_steps": 50, "budget": 0.0}, [4] * 13),
        ({"min_window_seconds": 0.0, "budget": 0.0}, [1] * 8),
        ({"min_window_seconds": 4.5 * STEP, "budget": 0.0}, [5] * 4),
        ({"min_window_seconds": 10.0, "budget": 0.0}, [45] * 4),
        ({"min_window_seconds": 10.0, "min_windows": 7, "budget": 0.0}, [25] * 7),
        ({"min_windows": 8, "max_steps": 28, "budget": 0.0}, [1] * 8),
        ({"min_window_seconds": 0.0, "carries": True, "budget": 0.0}, [5] * 4),
        ({"min_windows": 8, "max_steps": 28, "carries": True, "budget": 0.0}, [1] * 8),
        # Whole rounds, also where as many as are wanted are more than max_steps leaves.
        ({"round_steps": 7, "min_window_seconds": 50 * STEP, "max_steps": 300, "budget": 0.0}, [56] * 4),
        ({"round_steps": 7, "min_window_seconds": 50 * STEP, "max_steps": 80, "budget": 0.0}, [14] * 4),
    ],
)
def test_the_rules_have_the_last_word(run, rules, windows):
    assert run(**{"budget": 1000.0} | rules)[2] == windows


def test_the_slowest_rank_decides_on_steps_and_on_time(run):
    class WithAnother:
        """Another rank needs twice as long for a step, and has time for 20 of these instead of many."""

        def barrier(self):
            pass

        def maximum(self, value):
            return max(2 * STEP if value == STEP else value, -40 * STEP)

    assert run(control=WithAnother(), budget=100.0)[2] == [2] * 10


def test_a_change_of_a_tenth_is_steady(run, monkeypatch):
    monkeypatch.setattr(study_rules, "MOST_WARM_UP", 10)
    for before, last, steady in (
        (1000, 901, True),
        (1000, 899, False),
        (1000, 1099, True),
        (1000, 1101, False),
    ):
        found, num_warm_up, _ = run(*[before] * 5, *[last] * 5, 1)
        assert (found, num_warm_up) == (steady, 10)


def test_warm_up_goes_on_until_both_groups_are_alike(run):
    # The medians of steps 6..10 and 11..15 are the first that are both 1.
    assert run(*[2.0] * 7, 1.0, budget=1000.0)[:2] == (True, 15)
    assert run(*[2.0] * 7, 1.0, budget=1000.0, warmup_steps=17)[:2] == (True, 17)


@pytest.mark.parametrize(("budget", "num_warm_up"), [(33.0, 10), (34.0, 11), (36.0, 12), (1000.0, 15)])
def test_warm_up_ends_when_half_of_the_time_is_over(run, budget, num_warm_up):
    # 17 s after 10 steps, and 1 s for each further one.
    assert run(*[2.0] * 7, 1.0, budget=budget)[:2] == (num_warm_up == 15, num_warm_up)


def test_what_never_becomes_steady_is_measured_after_the_longest_warm_up(run):
    assert run(*[1.25**-step for step in range(100)], budget=1000.0)[:2] == (False, 20)
