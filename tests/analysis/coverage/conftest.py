"""Simulated studies: what a launch measures on a machine that drifts, forgets slowly, and is sometimes held up.

All launches of all studies at once, in logarithms of the time per step. The number of windows of a launch is what the
timed loop would choose (`test_stopping.py` holds the two together).
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dlscale.benchmarks.study.rules import MOST_WINDOWS, Rules

Values = NDArray[np.float64]

NUM_STUDIES = 4000  # the standard error of a coverage of 95 % is then 0.34 points
RULES = Rules()
WARM_UP = 10  # steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Spreads are of the logarithm."""

    memory: float = 0.0  # correlation of neighbouring windows
    window_spread: float = 0.02
    skewed: bool = False  # windows have a long tail to the slow side
    launch_spread: float = 0.005  # what a launch's windows have in common
    drift: float = 0.05  # of a random walk from block to block
    held_up: float = 0.0  # share of launches
    by: float = 0.2  # so much longer they take
    step_seconds: float = 0.03
    budget_seconds: float = 4.0  # of one launch's steps


MACHINES = {
    "quiet": Machine(),
    "autocorrelated windows": Machine(memory=0.8),
    "skewed windows": Machine(memory=0.8, skewed=True, window_spread=0.05),
    "outlying launches": Machine(held_up=0.05),
    "slightly outlying launches": Machine(held_up=0.05, by=0.03),
    "everything at once": Machine(memory=0.8, skewed=True, held_up=0.05),
}


def planned_windows(step_seconds: Values, left: Values, rules: Rules = RULES) -> Values:
    """How many windows a launch measures, by the time of a step in its warm-up and the time that is left."""
    most = rules.max_steps - rules.longest_warm_up
    steps = np.maximum(1, np.ceil(rules.min_window_seconds / step_seconds))
    least = np.maximum(rules.min_windows, np.ceil(rules.min_steps / steps))
    steps = np.minimum(steps, np.maximum(1, most // least))
    fitting = np.minimum(np.floor(np.maximum(left, 0) / (steps * step_seconds)), MOST_WINDOWS)
    return np.maximum(least, np.minimum(fitting, most // steps))


def ar1(generator: np.random.Generator, shape: tuple[int, ...], memory: float) -> Values:
    """Standard normal values whose neighbours along the last axis are correlated."""
    values = generator.standard_normal(shape)
    for index in range(1, shape[-1]):
        values[..., index] *= math.sqrt(1 - memory**2)
        values[..., index] += memory * values[..., index - 1]
    return values


def random_walk(generator: np.random.Generator, machine: Machine, shape: tuple[int, int]) -> Values:
    """What all launches of a block share, [N, B]."""
    return np.cumsum(machine.drift * generator.standard_normal(shape), axis=1)


def launches(generator: np.random.Generator, machine: Machine, drift: Values) -> Values:
    """Log of each launch's median time per step, [N, B]; 0 is a typical one of a machine that does not drift."""
    level = drift + machine.launch_spread * generator.standard_normal(drift.shape)
    level += machine.by * (generator.random(drift.shape) < machine.held_up)
    warm_up = ar1(generator, (*drift.shape, WARM_UP), machine.memory)
    step = machine.step_seconds * np.exp(level)
    seen = step * np.exp(machine.window_spread * np.median(warm_up[..., -5:], axis=-1))
    windows = planned_windows(seen, machine.budget_seconds - WARM_UP * step).astype(int)
    noise = ar1(generator, (*drift.shape, int(windows.max())), machine.memory)
    times = machine.window_spread * (np.expm1(noise) if machine.skewed else noise)
    times[np.arange(times.shape[-1]) >= windows[..., None]] = np.nan
    return level + np.nanmedian(times, axis=-1)


def studies(machine: Machine, num_blocks: int, *cells: dict[str, float]) -> list[Values]:
    """Log times per step of cells that run block by block, each [N, B]; always the same studies.

    Cells are given as changes of the machine: `{"step_seconds": 0.045}` for one whose steps take 1.5 times as long.
    """
    generator = np.random.default_rng(2015)
    drift = random_walk(generator, machine, (NUM_STUDIES, num_blocks))
    return [launches(generator, replace(machine, **cell), drift) for cell in cells]


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Machine:
    """Each of them."""
    return MACHINES[request.param]


def drifting(name: str, num_blocks: int, drift: float) -> tuple[Values, Values, Machine]:
    """(log times of launches, what each of their blocks adds, the machine), [N, B]; windows without noise."""
    machine = replace(MACHINES[name], drift=drift, window_spread=0.0)
    generator = np.random.default_rng(1956)
    blocks = random_walk(generator, machine, (NUM_STUDIES, num_blocks))
    return launches(generator, machine, blocks), blocks, machine
