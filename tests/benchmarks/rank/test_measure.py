"""The timed loop, with ranks as threads of this process."""

import threading
import time
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from dlscale.benchmarks.rank.measure import (
    HostClock,
    TrainingProgress,
    measure,
    time_fixed_window,
    time_window,
)
from dlscale.benchmarks.records.spool import MeasuredWindow
from dlscale.benchmarks.study.rules import Rules


class ThreadControl:
    """A control plane for ranks that are threads."""

    def __init__(self, num_ranks: int) -> None:
        self._barrier = threading.Barrier(num_ranks, timeout=20)
        self._values: dict[int, float] = {}

    def barrier(self) -> None:
        self._barrier.wait()

    def maximum(self, value: float) -> float:
        self._values[threading.get_ident()] = value
        self._barrier.wait()
        largest = max(self._values.values())
        self._barrier.wait()
        return largest


class Sleeper:
    """A trainer whose steps take a known time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.num_steps = 0
        self.num_synchronizations = 0

    def step(self) -> None:
        self.num_steps += 1
        time.sleep(self.seconds)

    def synchronize(self) -> None:
        self.num_synchronizations += 1


RULES = Rules(
    warmup_steps=10, max_warmup_steps=20, min_windows=4, min_window_seconds=0.01, min_steps=8, max_steps=200
)


def run_ranks(
    seconds: list[float],
    rules: Rules = RULES,
    budget: float = 0.0,
    make_progress: Callable[[], TrainingProgress] | None = None,
) -> list[list[MeasuredWindow]]:
    control = ThreadControl(len(seconds))
    windows: list[list[MeasuredWindow]] = [[] for _ in seconds]

    def rank(index: int) -> None:
        measure(
            Sleeper(seconds[index]),
            control,
            rules,
            deadline=time.perf_counter() + budget,
            emit=windows[index].append,
            progress=make_progress() if make_progress else None,
        )

    threads = [threading.Thread(target=rank, args=(index,)) for index in range(len(seconds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    return windows


def steady(windows: list[MeasuredWindow]) -> list[MeasuredWindow]:
    return [window for window in windows if window.phase == "steady"]


def test_all_ranks_run_the_same_windows_and_the_late_one_shows():
    windows = run_ranks([0.001, 0.001, 0.004, 0.001])
    shapes = [[(w.phase, w.num_steps) for w in rank] for rank in windows]
    assert all(shape == shapes[0] for shape in shapes)
    slow = [w.seconds / w.num_steps for w in steady(windows[2])]
    fast = [w.seconds / w.num_steps for w in steady(windows[0])]
    # Nobody waits for the late rank inside a window: its own seconds are long, and no one else's.
    assert min(slow) >= 0.004
    assert min(fast) < 0.003


def test_steps_per_window_follow_the_slowest_rank():
    windows = run_ranks([0.001, 0.006])
    assert {w.num_steps for w in steady(windows[0])} == {2}  # ceil(10 ms / 6 ms)
    assert len(steady(windows[0])) == RULES.min_windows


def test_windows_have_whole_rounds_where_ranks_exchange_now_and_then():
    control, windows = ThreadControl(1), []
    for most in (200, 80):  # 4 windows of 60 steps are more than 80 leave
        rules = RULES.model_copy(update={"max_steps": most, "min_window_seconds": 0.05})
        measure(Sleeper(0.001), control, rules, deadline=0.0, emit=windows.append, round_steps=7)
    steady = [window.num_steps for window in windows if window.phase == "steady"]
    assert len(steady) == 8
    assert all(num_steps % 7 == 0 for num_steps in steady)
    assert sum(steady[4:]) <= 60 < 80


def test_every_sample_of_the_warm_up_is_kept_and_flagged():
    windows = run_ranks([0.001])[0]
    warm_up = [w for w in windows if w.phase == "warmup"]
    assert RULES.warmup_steps <= len(warm_up) <= RULES.max_warmup_steps
    assert all(w.num_steps == 1 for w in warm_up)
    assert windows[: len(warm_up)] == warm_up


def test_windows_fill_the_time_that_is_left():
    short, long = run_ranks([0.002], budget=0.0)[0], run_ranks([0.002], budget=0.3)[0]
    assert len(steady(short)) == RULES.min_windows
    assert len(steady(long)) > 2 * RULES.min_windows


def test_a_drifting_trainer_is_not_steady():
    class Accelerating(Sleeper):
        def step(self) -> None:
            super().step()
            self.seconds *= 0.8

    found = measure(
        Accelerating(0.02), ThreadControl(1), RULES, deadline=time.perf_counter() + 60, emit=lambda _: None
    )
    assert found is False


def test_the_barrier_is_outside_the_interval():
    class LateControl(ThreadControl):
        def barrier(self) -> None:
            time.sleep(0.05)

    window = time_window(Sleeper(0.001), LateControl(1), phase="steady", num_steps=3)
    assert 0.003 <= window.seconds < 0.03


def test_a_window_synchronizes_once_and_stamps_add_up():
    trainer = Sleeper(0.001)
    window = time_window(trainer, ThreadControl(1), phase="steady", num_steps=5, step_timer=HostClock())
    assert trainer.num_synchronizations == 1
    assert window.step_seconds is not None
    assert len(window.step_seconds) == 5
    assert sum(window.step_seconds) <= window.seconds
    assert sum(window.step_seconds) == pytest.approx(window.seconds, rel=0.2)


@pytest.mark.parametrize(
    "changes",
    [
        {"warmup_steps": 60, "max_steps": 70},
        {"max_warmup_steps": 5000},
        {"warmup_steps": 0},
        {"min_windows": 0},
    ],
)
def test_rules_that_leave_nothing_to_measure_are_refused(changes: dict[str, int]):
    with pytest.raises(ValidationError):
        Rules(**changes)


def test_max_steps_bounds_a_launch():
    rules = RULES.model_copy(update={"max_steps": 40})
    windows = run_ranks([0.0005], rules, budget=5.0)[0]
    assert sum(window.num_steps for window in windows) <= 40


def make_windows_of(action: Callable[[], None]) -> MeasuredWindow:
    class Acting:
        def step(self) -> None:
            action()

        def synchronize(self) -> None: ...

    return time_window(Acting(), ThreadControl(1), phase="steady", num_steps=2)


def test_an_error_in_a_step_reaches_the_caller():
    def fail() -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        make_windows_of(fail)


class Shared:
    """What ranks that do not step together train: counts what was applied, and one of them is slow."""

    def __init__(self) -> None:
        self.num_applied = 0
        self.lock = threading.Lock()


class Independent(Sleeper):
    """A rank's trainer of shared weights."""

    def __init__(self, seconds: float, shared: Shared) -> None:
        super().__init__(seconds)
        self._shared = shared

    def step(self) -> None:
        super().step()
        with self._shared.lock:
            self._shared.num_applied += 1

    def num_applied(self) -> int:
        return self._shared.num_applied


def test_ranks_that_do_not_step_together_have_windows_of_fixed_time():
    """A slow rank takes fewer steps instead of holding the others up, and all windows are as long."""
    control, shared = ThreadControl(2), Shared()
    windows: list[list[MeasuredWindow]] = [[], []]

    def rank(index: int, seconds: float) -> None:
        trainer = Independent(seconds, shared)
        deadline = time.perf_counter()
        emit = windows[index].append
        measure(trainer, control, RULES, deadline=deadline, emit=emit, counting=trainer)

    threads = [threading.Thread(target=rank, args=pair) for pair in enumerate((0.001, 0.005))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    quick, slow = (steady(one) for one in windows)
    assert len(quick) == len(slow) >= RULES.min_windows
    for one, other in zip(quick, slow, strict=True):
        assert one.num_applied == other.num_applied == one.num_steps + other.num_steps
        assert one.seconds >= 0.01
    assert sum(one.num_steps for one in quick) > 2 * sum(one.num_steps for one in slow)


def test_ranks_of_a_group_go_on_as_long_as_they_agree():
    words = iter((True, True, False))
    window = time_fixed_window(
        Independent(0.0, Shared()),
        ThreadControl(1),
        phase="steady",
        seconds=1e-9,
        agree=lambda _: next(words),
    )
    assert (window.num_steps, window.num_applied) == (2, 2)


class LongTraining:
    """A course of so many steps, of which some were taken before."""

    def __init__(self, num_left: int) -> None:
        self.left = num_left
        self.passed_steps: list[int] = []

    def passed(self, num_steps: int) -> None:
        self.passed_steps.append(num_steps)
        self.left -= num_steps

    def num_left(self) -> int:
        return max(0, self.left)


def test_a_course_is_gone_to_its_end_and_counts_every_step() -> None:
    courses: list[LongTraining] = []

    def make_progress() -> LongTraining:
        courses.append(LongTraining(400))
        return courses[-1]

    ranks = run_ranks([0.001, 0.002], make_progress=make_progress)
    for windows, course in zip(ranks, courses, strict=True):
        taken = sum(window.num_steps for window in windows)
        assert taken == sum(course.passed_steps)
        longest = max(window.num_steps for window in windows)
        assert 400 <= taken < 400 + longest, "more than max_steps, and no window more than needed"


def test_a_long_course_has_long_windows_rather_than_many() -> None:
    rules = RULES.model_copy(update={"max_windows": 5})
    (windows,) = run_ranks([0.001], rules, make_progress=lambda: LongTraining(600))
    steady = [window for window in windows if window.phase == "steady"]
    assert len(steady) <= 5
    assert steady[0].num_steps >= 100


def test_windows_of_a_course_are_heard_of_before_they_look_like_a_hang() -> None:
    rules = RULES.model_copy(update={"max_windows": 2, "stall_seconds": 0.4})
    (windows,) = run_ranks([0.001], rules, make_progress=lambda: LongTraining(600))
    assert max(window.seconds for window in windows) < 0.2


def test_what_is_left_of_a_course_may_be_less_than_the_least_that_is_measured() -> None:
    (windows,) = run_ranks([0.001], make_progress=lambda: LongTraining(3))
    assert sum(window.phase == "steady" for window in windows) == RULES.min_windows
