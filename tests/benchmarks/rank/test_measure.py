"""The timed loop in real time, with ranks as threads; `test_windows.py` counts its steps by a clock of its own."""

import threading
import time

import pytest

from dlscale.benchmarks.rank.measure import HostClock, measure, time_fixed_window, time_window
from dlscale.benchmarks.study.rules import Rules
from tests.benchmarks.rank.threads import ALONE, Communicator, Meeting, on_ranks

RULES = Rules(
    warmup_steps=10, max_warmup_steps=20, min_windows=4, min_window_seconds=0.01, min_steps=8, max_steps=200
)


class Sleeper:
    """A trainer whose steps take a known time; those of several ranks may be of `shared` weights."""

    def __init__(self, seconds, shared=None):
        self.seconds, self.num_synchronizations = seconds, 0
        self.shared, self.lock = shared if shared is not None else [], threading.Lock()

    def step(self):
        time.sleep(self.seconds)
        with self.lock:
            self.shared.append(1)

    def num_applied(self):
        return len(self.shared)

    def synchronize(self):
        self.num_synchronizations += 1


class Late(Communicator):
    """One rank, whose barriers take long."""

    def barrier(self):
        time.sleep(0.05)


def windows_of(*seconds, shared=None):
    """The windows of each rank, whose steps take so long."""

    def rank(world):
        windows = []
        trainer = Sleeper(seconds[world.rank], shared)
        counting = None if shared is None else trainer
        measure(trainer, world, RULES, deadline=time.perf_counter(), emit=windows.append, counting=counting)
        return windows

    return on_ranks(len(seconds), rank)


def steady(windows):
    return [window for window in windows if window.phase == "steady"]


def test_all_ranks_run_the_same_windows_and_the_late_one_shows():
    windows = windows_of(0.001, 0.001, 0.004, 0.001)
    shapes = [[(window.phase, window.num_steps) for window in rank] for rank in windows]
    assert all(shape == shapes[0] for shape in shapes)
    slow = [window.seconds / window.num_steps for window in steady(windows[2])]
    fast = [window.seconds / window.num_steps for window in steady(windows[0])]
    # Nobody waits for the late rank inside a window: its own seconds are long, and no one else's.
    assert min(slow) >= 0.004
    assert min(fast) < 0.003


def test_the_barrier_is_outside_the_interval():
    window = time_window(Sleeper(0.001), Late(Meeting(1), 0), phase="steady", num_steps=3)
    assert 0.003 <= window.seconds < 0.03


def test_a_window_synchronizes_once_and_stamps_add_up():
    trainer = Sleeper(0.001)
    window = time_window(trainer, ALONE, phase="steady", num_steps=5, step_timer=HostClock())
    assert trainer.num_synchronizations == 1
    assert len(window.step_seconds) == 5
    assert sum(window.step_seconds) <= window.seconds
    assert sum(window.step_seconds) == pytest.approx(window.seconds, rel=0.2)


def test_ranks_that_do_not_step_together_have_windows_of_fixed_time():
    """A slow rank takes fewer steps instead of holding the others up, and all windows are as long."""
    quick, slow = map(steady, windows_of(0.001, 0.005, shared=[]))
    assert len(quick) == len(slow) >= RULES.min_windows
    for one, other in zip(quick, slow, strict=True):
        assert one.num_applied == other.num_applied == one.num_steps + other.num_steps
        assert one.seconds >= 0.01
    assert sum(one.num_steps for one in quick) > 2 * sum(one.num_steps for one in slow)


def test_ranks_of_a_group_go_on_as_long_as_they_agree():
    words = iter((True, True, False))
    window = time_fixed_window(Sleeper(0.0), ALONE, phase="steady", seconds=1e-9, agree=lambda _: next(words))
    assert (window.num_steps, window.num_applied) == (2, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"warmup_steps": 60, "max_steps": 70},
        {"max_warmup_steps": 5000},
        {"warmup_steps": 0},
        {"min_windows": 0},
    ],
)
def test_rules_that_leave_nothing_to_measure_are_refused(changes):
    with pytest.raises(ValueError, match=r"warm-up|greater than 0"):
        Rules(**changes)
