"""How often do intervals hold what they are intervals of? The tables of docs/measurements/coverage.md, simulated.

    python tests/benchmark/coverage.py                      both tables, from 4,000 and 2,000 studies
    python tests/benchmark/coverage.py --write              and into docs/measurements/coverage.md

Seeds are fixed: the same code gives the same tables. A study has one launch of each cell in each of 6, 8 or 10 blocks.
Everything is in logarithms of the time per step; 0 is what the machine does in the long run.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dlscale.analysis.findings.waterfall_levels import Levels
from dlscale.analysis.findings.waterfall_parts import not_exceeded, staircase
from dlscale.analysis.statistics import block_ratio, chained_ratio, median_interval

Values = NDArray[np.float64]
DOCUMENT = Path(__file__).parents[2] / "docs" / "measurements" / "coverage.md"
LAUNCHES = (6, 8, 10)
NUM_STUDIES, NUM_WATERFALLS = 4000, 2000
LAUNCH_SPREAD = 0.01  # what is a launch's own
SLOW = 0.2  # by how much a held-up launch or a slow time takes longer
RATIO = 1.5  # of the two cells of a paired ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`levels` draws what the launches of each block share, [N, B]; `held_up` is the share of slow launches."""

    name: str
    levels: Callable[[np.random.Generator, tuple[int, int]], Values]
    held_up: float = 0.0

    def launches(self, generator: np.random.Generator, levels: Values, *, held_up: float) -> Values:
        """Log times of a cell's launches, [N, B]."""
        own = LAUNCH_SPREAD * generator.standard_normal(levels.shape)
        return levels + own + SLOW * (generator.random(levels.shape) < held_up)


def steady(generator: np.random.Generator, shape: tuple[int, int]) -> Values:
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
        change = generator.random(shape[0]) < np.where(slow, leave, enter)
        slow = slow != change
    return levels


MACHINES = (
    Machine(name="steady", levels=steady),
    Machine(name="1 launch in 20 held up by 20 %", levels=steady, held_up=0.05),
    Machine(name="drifts slowly, by 3 %", levels=drifting),
    Machine(name="slow by 20 % for long times", levels=slow_times),
)
NEIGHBOUR = Machine(name="1 launch in 3 slowed by 20 %", levels=steady, held_up=1 / 3)


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


def median_coverages(machine: Machine, num_launches: int, num_studies: int) -> tuple[float, float]:
    """Coverage of a rate's interval: of the median while the study ran, and of the long run's."""
    generator = np.random.default_rng(2021)
    levels = machine.levels(generator, (num_studies, num_launches))
    launches = machine.launches(generator, levels, held_up=machine.held_up)
    found = [median_interval(one.tolist()) for one in launches]
    low, high = (np.array([getattr(one, end) for one in found]) for end in ("low", "high"))
    here = typical(machine, levels)
    always = float(
        np.median(
            machine.launches(generator, machine.levels(generator, (200_000, 1)), held_up=machine.held_up)
        )
    )
    return (float(np.mean((low <= truth) & (truth <= high))) for truth in (here, always))  # type: ignore[return-value]


def ratio_coverages(
    machine: Machine, num_launches: int, num_studies: int, *, one_side: bool = False
) -> tuple[float, float]:
    """Coverage of a paired ratio's interval: of the long run's ratio of geometric means, and of that of medians."""
    generator = np.random.default_rng(2022)
    levels = machine.levels(generator, (num_studies, num_launches))
    sides = (machine.held_up, 0.0 if one_side else machine.held_up)
    over, under = (machine.launches(generator, levels, held_up=share) for share in sides)
    found = [
        block_ratio(dict(enumerate(RATIO * np.exp(mine))), dict(enumerate(np.exp(theirs))))
        for mine, theirs in zip(over, under, strict=True)
    ]
    low, high = (np.log([getattr(one, end) / RATIO for one in found]) for end in ("low", "high"))
    mean = SLOW * (sides[0] - sides[1])
    many = np.zeros((200_000, 1))
    medians = [float(np.median(machine.launches(generator, many, held_up=share))) for share in sides]
    truths = (mean, medians[0] - medians[1])
    return (float(np.mean((low <= truth) & (truth <= high))) for truth in truths)  # type: ignore[return-value]


def chained_coverage(machine: Machine, num_launches: int, num_studies: int) -> float:
    """Coverage of the long run's ratio by a chain of two jobs, each of which has the link."""
    generator = np.random.default_rng(2024)
    jobs = [machine.levels(generator, (num_studies, num_launches)) for _ in range(2)]
    over, near, far, under = (
        np.exp(machine.launches(generator, jobs[job], held_up=machine.held_up)) for job in (0, 0, 1, 1)
    )
    hits = 0
    for study in range(num_studies):
        link = dict(enumerate([*near[study], *far[study]]))
        base = dict(enumerate(under[study], start=num_launches))
        found = chained_ratio([dict(enumerate(RATIO * over[study])), link, base])
        hits += (found.low or math.inf) <= RATIO <= (found.high or 0.0)
    return hits / num_studies


STUDY_RATE = "throughput: of the median launch while the study ran"
LONG_RATE = "throughput: of the long run, which it does not claim"
TYPICAL_RATIO = "paired ratio: of typical launches (medians)"
CHAINED_RATIO = "chained ratio: of typical launches (medians)"
MEAN_RATIO = "paired ratio: of geometric means, slow launches included, which it does not claim"
INTERVALS = (STUDY_RATE, LONG_RATE, TYPICAL_RATIO, MEAN_RATIO, CHAINED_RATIO)

Coverages = dict[tuple[str, str], list[float]]


def coverages(num_studies: int) -> Coverages:
    """(interval and what it is of, machine) -> coverage by each number of launches."""
    found: Coverages = {}

    def add(key: tuple[str, str], value: float) -> None:
        found.setdefault(key, []).append(value)

    for machine in MACHINES:
        for number in LAUNCHES:
            here, always = median_coverages(machine, number, num_studies)
            add((STUDY_RATE, machine.name), here)
            add((LONG_RATE, machine.name), always)
            _, medians = ratio_coverages(machine, number, num_studies)
            add((TYPICAL_RATIO, machine.name), medians)
            add((CHAINED_RATIO, machine.name), chained_coverage(machine, number, num_studies))
    for machine in (MACHINES[1], NEIGHBOUR):
        for number in LAUNCHES:
            geometric, medians = ratio_coverages(machine, number, num_studies, one_side=True)
            name = f"{machine.name}, of one side only"
            add((TYPICAL_RATIO, name), medians)
            add((MEAN_RATIO, name), geometric)
    return dict(sorted(found.items(), key=lambda item: INTERVALS.index(item[0][0])))


# Seconds of a step: sharing the machine 7.7 %, stragglers 2 %, communication and waiting 11.5 % of the last.
CAUSES = {"ideal": 0.788, "mean": 0.865, "latest": 0.885, "measured": 1.0}
EQUAL = {"ideal": 0.779, "mean": 0.879, "latest": 0.8999, "measured": 1.0}  # 10.0, 2.1 and 10.01 %
ALIKE = {"ideal": 0.6999, "mean": 0.7998, "latest": 0.8998, "measured": 1.0}  # 9.99, 10.0 and 10.02 %
CAUSE_SPREAD = 0.0225


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """In which share of studies the largest cause is named, and a wrong one."""

    right: float
    wrong: float


def named(steps: dict[str, float], num_launches: int, num_studies: int, *, held_up: float = 0.0) -> Named:
    """How often the largest part of a waterfall is named. `mean` and `latest` come from one launch."""
    generator = np.random.default_rng(2023)
    stairs = staircase(steps.keys(), smaller=False, reads=False, together=True)  # type: ignore[arg-type]
    heights = np.diff(list(steps.values()))
    largest = stairs[int(np.argmax(heights))].name
    right = wrong = 0
    for _ in range(num_studies):
        drift = 0.05 * generator.standard_normal(num_launches)
        launch = {
            name: CAUSE_SPREAD * generator.standard_normal(num_launches)
            + SLOW * (generator.random(num_launches) < held_up)
            for name in steps
        }
        launch["latest"] = launch["mean"] + 0.1 * launch["latest"]
        near = {name: seconds * np.exp(drift + launch[name]) for name, seconds in steps.items()}
        levels = Levels(near=near, far={})  # type: ignore[arg-type]
        if not not_exceeded(stairs, levels):
            told = max(stairs, key=lambda stair: levels.share(stair.terms).center).name
            right, wrong = right + (told == largest), wrong + (told != largest)
    return Named(right=right / num_studies, wrong=wrong / num_studies)


def causes(num_studies: int) -> dict[str, list[Named]]:
    """Scenario -> how often causes are named, by each number of launches."""
    return {
        "11.5 % versus 7.7 %": [named(CAUSES, number, num_studies) for number in LAUNCHES],
        "the same, 1 launch in 20 held up": [
            named(CAUSES, number, num_studies, held_up=0.05) for number in LAUNCHES
        ],
        "two nearly equal": [named(EQUAL, number, num_studies) for number in LAUNCHES],
        "three nearly equal": [named(ALIKE, number, num_studies) for number in LAUNCHES],
    }


def coverage_table(found: Coverages) -> list[str]:
    """The first table, in Markdown."""
    heads = " | ".join(f"{number} launches" for number in LAUNCHES)
    lines = [f"| interval | machine | {heads} |", "| --- | --- " + "| ---: " * len(LAUNCHES) + "|"]
    for (interval, machine), values in found.items():
        lines.append(f"| {interval} | {machine} | {' | '.join(f'{100 * value:.1f} %' for value in values)} |")
    return lines


def cause_table(found: dict[str, list[Named]]) -> list[str]:
    """The second table, in Markdown."""
    heads = " | ".join(f"{number} launches" for number in LAUNCHES)
    lines = [f"| largest part named: right, wrong | {heads} |", "| --- " + "| ---: " * len(LAUNCHES) + "|"]
    for scenario, values in found.items():
        cells = (f"{100 * value.right:.0f} %, {100 * value.wrong:.1f} %" for value in values)
        lines.append(f"| {scenario} | {' | '.join(cells)} |")
    return lines


def replaced(text: str, name: str, lines: Sequence[str]) -> str:
    """The document with a table between its two markers."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    if not tail:
        raise ValueError(f"{DOCUMENT.name} has no table {name}")
    return f"{head}{begin}{chr(10).join(lines)}\n{end}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measured coverages of intervals.")
    parser.add_argument(
        "--write", action="store_true", help="Write the tables into docs/measurements/coverage.md."
    )
    options = parser.parse_args()
    tables = {
        "coverages": coverage_table(coverages(NUM_STUDIES)),
        "causes": cause_table(causes(NUM_WATERFALLS)),
    }
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, lines in tables.items():
        sys.stdout.write("\n".join(lines) + "\n\n")
        text = replaced(text, name, lines)
    if options.write:
        DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
