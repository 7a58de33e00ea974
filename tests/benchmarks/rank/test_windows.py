"""How many steps and windows a launch takes, by hand: the clock moves only when a step is taken.

All seconds are multiples of 1/64, so that they add up exactly.
"""

import itertools
from types import SimpleNamespace

import pytest

from dlscale.benchmarks.rank import measure
from dlscale.benchmarks.rank.measure import CommunicatorControl
from dlscale.benchmarks.study.rules import Rules
from dlscale.collectives import job

STEP = 1 / 64
RULES = {
    "warmup_steps": 10,
    "max_warmup_steps": 20,
    "min_windows": 4,
    "min_window_seconds": 4 * STEP,
    "min_steps": 8,
    "max_steps": 200,
    "max_windows": 50,
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


class Course:
    """A training of so many steps."""

    def __init__(self, num_steps):
        self.num_steps = num_steps

    def passed(self, num_steps):
        self.num_steps -= num_steps

    def num_left(self):
        return max(0, self.num_steps)


@pytest.fixture
def run(monkeypatch):
    """(whether it became steady, warm-up steps, steps of each window)."""

    def run(
        *step_seconds,
        budget=0.0,
        budgeted=True,
        course=None,
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
            progress=Course(course) if course else None,
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
        ({"max_windows": 7}, [4] * 7),
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


def test_a_change_of_a_tenth_is_steady(run):
    for before, last, steady in (
        (1000, 901, True),
        (1000, 899, False),
        (1000, 1099, True),
        (1000, 1101, False),
    ):
        found, num_warm_up, _ = run(*[before] * 5, *[last] * 5, 1, warmup_steps=10, max_warmup_steps=10)
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


@pytest.mark.parametrize("longest", [1, 5, 6, 9])
def test_a_warm_up_too_short_for_two_groups_is_not_steady(run, longest):
    assert run(warmup_steps=1, max_warmup_steps=longest)[:2] == (False, longest)


@pytest.mark.parametrize(
    ("rules", "windows"),
    [
        # 600 steps but for 10 of the warm-up, in at most 5 windows ...
        ({"max_windows": 5}, [118] * 5),
        # ... unless they would last longer than a quarter of the time without a heartbeat.
        ({"max_windows": 5, "stall_seconds": 64 * STEP}, [16] * 37),
        ({"max_windows": 50}, [12] * 50),
        ({"max_windows": 200}, [4] * 148),
        ({"max_windows": 5, "budget": 1000.0, "course": 3}, [4] * 5),
        # The last window is for the one step that is left.
        ({"course": 10 + 16}, [4] * 4),
        ({"course": 10 + 16 + 1}, [4] * 5),
    ],
)
def test_a_course_is_cut_into_windows(run, rules, windows):
    assert run(**{"course": 600} | rules)[2] == windows


def test_ranks_that_do_not_step_together_have_windows_of_the_time_of_as_many_steps(monkeypatch):
    clock = Clock([STEP] * (10 + 4 + 4) + [3 * STEP])
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    windows = []
    measure.measure(clock, clock, Rules(**RULES), deadline=clock.now, emit=windows.append, counting=clock)
    found = [(window.num_steps, window.seconds / STEP, window.num_applied) for window in windows[10:]]
    # A step that begins within a window ends it.
    assert found == [(4, 4, 8), (4, 4, 8), (2, 6, 4), (2, 6, 4)]


def test_a_window_has_the_work_of_its_steps_and_not_the_barrier_before_it(monkeypatch):
    """On a GPU steps only hand in work: a stamp before the trainer is synchronised would time the handing in."""

    class Device(Clock):
        def step(self):
            self.num_steps += 1
            self.now += STEP

        def synchronize(self):
            self.now += 7 * STEP

        def barrier(self):
            self.now += 100 * STEP

    clock = Device([STEP])
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    window = measure.time_window(clock, clock, phase="steady", num_steps=3, step_timer=measure.HostClock())
    assert (window.seconds, window.step_seconds) == (10 * STEP, [STEP] * 3)
    fixed = measure.time_fixed_window(clock, clock, phase="steady", seconds=3 * STEP)
    assert (fixed.num_steps, fixed.seconds) == (3, 10 * STEP)


def test_ranks_of_a_group_go_on_as_long_as_they_agree():
    words = iter((True, True, False))
    clock = Clock([STEP])
    window = measure.time_fixed_window(
        clock, clock, phase="steady", seconds=1e-9, agree=lambda _: next(words)
    )
    assert (window.num_steps, window.num_applied) == (2, 4)


class Looking:
    """An audit that takes a step whenever it may, and notes when that was."""

    def __init__(self, clock, windows):
        self.clock, self.windows, self.calls = clock, windows, []

    def note(self, *call):
        self.calls.append((*call, len(self.windows)))
        self.clock.step()

    def before_warm(self):
        self.note("before_warm")

    def after_warm(self):
        self.note("after_warm")

    def warmed_up(self):
        self.note("warmed_up")

    def begin(self, num_windows):
        self.note("begin", num_windows)

    def before(self, window):
        self.note("before", window)

    def after(self, window):
        self.note("after", window)

    def end(self):
        self.note("end")


@pytest.mark.parametrize(("course", "num_windows"), [(None, 4), (10 + 4 * 6, 6)])
def test_an_audit_looks_between_windows_and_none_of_its_steps_is_timed(monkeypatch, course, num_windows):
    clock = Clock([STEP])
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    windows = []
    audit = Looking(clock, windows)
    progress = Course(course) if course else None
    measure.measure(
        clock, clock, Rules(**RULES), deadline=clock.now, emit=windows.append, progress=progress, audit=audit
    )
    assert [window.seconds / STEP for window in windows] == [1] * 10 + [4] * num_windows
    looks = [call for window in range(num_windows) for call in looks_at(window)]
    warm = [("before_warm", 9), ("after_warm", 10), ("warmed_up", 10)]
    assert audit.calls == [*warm, ("begin", 4, 10), *looks, ("end", 10 + num_windows)]


def looks_at(window):
    """Before and after, each with the number of windows that are written by then."""
    return [("before", window, 10 + window), ("after", window, 10 + window + 1)]


class Communicator:
    """One rank that meets itself after a few looks."""

    def __init__(self, num_looks=0):
        self.num_looks, self.calls = num_looks, []

    def Barrier(self):  # noqa: N802
        self.calls.append("Barrier")

    def Ibarrier(self):  # noqa: N802
        self.calls.append("Ibarrier")
        return self

    def Test(self):  # noqa: N802
        self.num_looks -= 1
        return self.num_looks < 0

    def allreduce(self, value, op):
        self.calls.append(op)
        return value


def test_a_patient_rank_sleeps_where_others_wait_inside_mpi(monkeypatch):
    pauses = []
    monkeypatch.setattr(job, "time", SimpleNamespace(sleep=pauses.append))
    plain, patient = Communicator(), Communicator(num_looks=3)
    control = CommunicatorControl(plain)
    control.barrier()
    assert control.maximum(2.0) == 2.0
    assert plain.calls == ["Barrier", max]
    control = CommunicatorControl(patient, patient=True)
    control.barrier()
    assert pauses == [0.0005] * 3
    assert control.maximum(2.0) == 2.0
    assert patient.calls == ["Ibarrier", "Ibarrier", max]
