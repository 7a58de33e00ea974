"""Windows against another clock: no rank that lost its core fails, and seconds or starts of other windows do."""

import random
from dataclasses import replace

import pytest

from dlscale.benchmarks.records.spool import MeasuredWindow, Witnessed
from dlscale.benchmarks.records.target import Evaluation
from dlscale.benchmarks.records.window_gates import evaluations_gate, launch_gate, window_gates
from dlscale.benchmarks.records.windows import Window

STEPS = 4


def measured(*, longest_pause: float, num_windows: int = 10) -> list[MeasuredWindow]:
    """Windows of 0.15 s on a rank that loses its core between any two readings of a clock."""
    generator = random.Random(1)  # noqa: S311
    now, found = 100.0, []

    def read() -> float:
        nonlocal now
        now += generator.uniform(0.0, longest_pause)
        return now

    for _ in range(num_windows):
        outer, start, inner = read(), read(), read()
        now += 0.15
        ending, end, outer_end = read(), read(), read()
        seen = Witnessed(num_steps=STEPS, start=outer, begun=inner, ending=ending, end=outer_end)
        found.append(MeasuredWindow("steady", STEPS, start, end - start, witnessed=seen))
    return found


def verdicts(windows: list[MeasuredWindow]) -> dict[str, bool]:
    recorded = [
        Window(phase="steady", num_steps=STEPS, start_seconds=[own.start - 100], seconds=[own.seconds])
        for own in windows
    ]
    return {gate.name: gate.passed for gate in window_gates(recorded, [windows])}


def longer(window, seconds):
    return replace(window, seconds=window.seconds + seconds)


@pytest.mark.parametrize("longest_pause", [0.0, 0.001, 0.3])
def test_a_rank_that_loses_its_core_between_readings_passes(longest_pause):
    assert set(verdicts(measured(longest_pause=longest_pause)).values()) == {True}


CHANGES = {
    "halved": lambda windows: [replace(one, seconds=one.seconds / 2) for one in windows],
    "one halved": lambda windows: [*windows[:4], replace(windows[4], seconds=0.075), *windows[5:]],
    "each 1 ms shorter": lambda windows: [longer(one, -0.001) for one in windows],
    "each 1 ms longer": lambda windows: [longer(one, 0.001) for one in windows],
    "one earlier": lambda windows: [
        *windows[:4],
        replace(windows[4], start=windows[4].start - 0.01),
        *windows[5:],
    ],
    "no time": lambda windows: [*windows[:4], replace(windows[4], seconds=1e15), *windows[5:]],
    "not seen": lambda windows: [*windows[:4], replace(windows[4], witnessed=None), *windows[5:]],
}


@pytest.mark.parametrize(
    ("lasted", "passed", "checked"),
    [(4.0, True, True), (1.6, True, True), (1.4, False, True), (None, True, False)],
)
def test_all_windows_of_a_launch_fit_into_it(lasted, passed, checked):
    short, full = measured(longest_pause=0.0, num_windows=3), measured(longest_pause=0.0)
    gate = launch_gate([short, full], lasted=lasted)
    assert (gate.passed, gate.value is not None) == (passed, checked)


@pytest.mark.parametrize("change", CHANGES)
def test_seconds_and_starts_that_another_clock_does_not_show_fail(change):
    windows = CHANGES[change](measured(longest_pause=1e-5))
    assert not verdicts(windows)["window_clocks"]


@pytest.mark.parametrize(
    (
        "first_step",
        "evaluated",
        "passed",
    ),  # {step: seconds of training before it}; the slowest rank takes 0.5 s
    [
        (0, {4: 0.5, 12: 1.5}, True),
        (0, {4: 0.25, 12: 0.75}, False),
        (0, {4: 0.4, 12: 1.2}, False),  # those of the other rank
        (0, {4: 0.5, 6: 1.0}, False),  # inside a window
        (8, {8: 1.0, 12: 1.5, 20: 2.5}, True),
        (8, {8: 1.0, 12: 1.5, 20: 3.0}, False),
        (8, {8: 1.0, 12: 0.5}, False),  # without the time before
    ],
)
def test_evaluations_come_after_windows_with_the_time_of_all_of_them(first_step, evaluated, passed):
    window = Window(phase="steady", num_steps=STEPS, start_seconds=[0.0, 0.0], seconds=[0.4, 0.5])
    evaluations = [
        Evaluation(
            step=step, samples=step, training_seconds=seconds, evaluating_seconds=0.1, loss=0.5, metrics={}
        )
        for step, seconds in evaluated.items()
    ]
    gate = evaluations_gate(evaluations, [window] * 3, first_step=first_step)
    assert (gate.name, gate.passed) == ("evaluation_times", passed)
