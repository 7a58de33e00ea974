"""How often do intervals hold what they are intervals of? The table of coverage.md, simulated.

Seeds are fixed: the same code gives the same table. A study has one launch of each cell in each of 6, 8 or 10 blocks.
Everything is in logarithms of the time per step; 0 is what the machine does in the long run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dlscale.analysis.statistics import median_interval, ratio

Values = NDArray[np.float64]
LAUNCHES = (6, 8, 10)
NUM_STUDIES = 4000
LAUNCH_SPREAD = 0.01  # what is a launch's own
SLOW = 0.2  # by how much a held-up launch or a slow time takes longer
RATIO = 1.5  # of the two cells of a paired ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`levels` draws what the launches of each block share, [N, B]; `held_up` is the share of slow launches."""

    name: str
    levels: Callable[[np.random.Generator, tuple[int, int]], Values]
    held_up: float = 0.0
    one_side: bool = False  # of a ratio

    def launches(self, generator: np.random.Generator, levels: Values, *, held_up: float) -> Values:
        """Log times of a cell's launches, [N, B]."""
        own = LAUNCH_SPREAD * generator.standard_normal(levels.shape)
        return levels + own + SLOW * (generator.random(levels.shape) < held_up)


def steady(_: np.random.Generator, shape: tuple[int, int]) -> Values:
    """Nothing changes from block to block."""
    return np.zeros(shape)


def drifting(generator: np.random.Generator, shape: tuple[int, int]) -> Values:
    """Spread 3 %, and 98 % of it kept from block to block: a study sees a part of what the machine does."""
    kept = 0.98
    levels = generator.standard_normal(shape)
    for block in range(1, shape[1]):
        levels[:, block] = kept * levels[:, block - 1] + math.sqrt(1 - kept**2) * levels[:, block]
    return 0.03 * levels


def slow_times(generator: np.random.Generator, shape: tuple[int, int]) -> Values:
    """Slow for 30 % of the time, 50 blocks on end on average."""
    leave, enter = 1 / 50, 0.3 / 0.7 / 50
    slow = generator.random(shape[0]) < 0.3
    levels = np.zeros(shape)
    for block in range(shape[1]):
        levels[:, block] = SLOW * slow
        slow = slow != (generator.random(shape[0]) < np.where(slow, leave, enter))
    return levels


MACHINES = (
    Machine(name="steady", levels=steady),
    Machine(name="1 launch in 20 held up by 20 %", levels=steady, held_up=0.05),
    Machine(name="drifts slowly, by 3 %", levels=drifting),
    Machine(name="slow by 20 % for long times", levels=slow_times),
)
ONE_SIDED = (
    Machine(
        name="1 launch in 20 held up by 20 %, of one side only", levels=steady, held_up=0.05, one_side=True
    ),
    Machine(
        name="1 launch in 3 slowed by 20 %, of one side only", levels=steady, held_up=1 / 3, one_side=True
    ),
)


def typical(machine: Machine, levels: Values) -> Values:
    """The median over a study's blocks of what a launch may be, [N]: half above, half below, by bisection."""
    low, high = levels.min(axis=1) - 1, levels.max(axis=1) + 1
    for _ in range(50):
        middle = (low + high) / 2
        away = middle[:, None] - levels
        below = (1 - machine.held_up) * ndtr(away / LAUNCH_SPREAD)
        below += machine.held_up * ndtr((away - SLOW) / LAUNCH_SPREAD)
        is_above = below.mean(axis=1) > 0.5
        low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
    return np.asarray(middle)


def of_median(machine: Machine, num_launches: int, num_studies: int) -> float:
    """Coverage of a rate's interval: of the median while the study ran."""
    generator = np.random.default_rng(2021)
    levels = machine.levels(generator, (num_studies, num_launches))
    found = [median_interval(one) for one in machine.launches(generator, levels, held_up=machine.held_up)]
    low, high = (np.array([getattr(one, end) for one in found]) for end in ("low", "high"))
    truth = typical(machine, levels)
    return float(np.mean((low <= truth) & (truth <= high)))


def of_ratio(machine: Machine, num_launches: int, num_studies: int) -> float:
    """Coverage of a paired ratio's interval: of the ratio of the long run's medians."""
    generator = np.random.default_rng(2022)
    levels = machine.levels(generator, (num_studies, num_launches))
    sides = (machine.held_up, 0.0 if machine.one_side else machine.held_up)
    over, under = (np.exp(machine.launches(generator, levels, held_up=share)) for share in sides)
    found = [ratio(RATIO * mine, theirs) for mine, theirs in zip(over, under, strict=True)]
    low, high = (np.log([getattr(one, end) / RATIO for one in found]) for end in ("low", "high"))
    many = np.zeros((200_000, 1))
    medians = [np.median(machine.launches(generator, many, held_up=share)) for share in sides]
    return float(np.mean((low <= medians[0] - medians[1]) & (medians[0] - medians[1] <= high)))


def of_chain(machine: Machine, num_launches: int, num_studies: int) -> float:
    """Coverage of the long run's ratio by a chain of two jobs, each of which has the link."""
    generator = np.random.default_rng(2024)
    jobs = [machine.levels(generator, (num_studies, num_launches)) for _ in range(2)]
    times = [np.exp(machine.launches(generator, jobs[job], held_up=machine.held_up)) for job in (0, 0, 1, 1)]
    hits, none = 0, np.full(num_launches, np.nan)
    for over, near, far, under in zip(*times, strict=True):
        found = ratio([*(RATIO * over), *none], [*near, *far], [*none, *under])
        hits += found.low <= RATIO <= found.high
    return hits / num_studies


ROWS = (
    ("throughput: of the median launch while the study ran", of_median, MACHINES),
    ("paired ratio: of typical launches (medians)", of_ratio, (*MACHINES, *ONE_SIDED)),
    ("chained ratio: of typical launches (medians)", of_chain, MACHINES),
)


def table(num_studies: int) -> list[str]:
    """The table, in Markdown."""
    heads = " | ".join(f"{number} launches" for number in LAUNCHES)
    lines = [f"| interval | machine | {heads} |", "| --- | --- " + "| ---: " * len(LAUNCHES) + "|"]
    for interval, coverage, machines in ROWS:
        for machine in machines:
            cells = [f"{100 * coverage(machine, number, num_studies):.1f} %" for number in LAUNCHES]
            lines.append(f"| {interval} | {machine.name} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table(NUM_STUDIES)))
