"""The simulated stopping rule is the timed loop's own."""

from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.benchmarks.rank import measure
from dlscale.benchmarks.study import study
from tests.benchmarks.rank.test_windows import Clock

from .conftest import planned_windows

WARM_UP = 10


@pytest.fixture
def measured(monkeypatch):
    """(warm-up steps, windows) that the timed loop takes of these steps, one after the other."""

    def run(step_seconds, budget_seconds):
        clock = Clock(step_seconds)
        monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.now))
        found = []
        deadline = clock.now + budget_seconds
        measure.measure(clock, clock, study.Rules(), deadline=deadline, emit=found.append, budgeted=True)
        phases = [one.phase for one in found]
        return phases.count("warmup"), phases.count("steady")

    return run


@pytest.mark.parametrize("budget_seconds", [0.1, 2.0, 4.0, 30.0])
@pytest.mark.parametrize("typical", [0.0003, 0.004, 0.03, 0.045, 0.4])
def test_windows_are_as_many_as_the_timed_loop_takes(measured, typical, budget_seconds):
    generator = np.random.default_rng(7)
    for _ in range(5):
        step_seconds = typical * np.exp(0.02 * generator.standard_normal(20_000))
        num_warm_up, num_windows = measured(step_seconds, budget_seconds)
        assert num_warm_up == WARM_UP
        seen = np.median(step_seconds[WARM_UP - 5 : WARM_UP])
        left = budget_seconds - step_seconds[:WARM_UP].sum()
        assert num_windows == planned_windows(np.array(seen), np.array(left))
