"""Outliers: the launches and windows of every cell that stand out, and its rate with and without them.

A launch is compared with the other launches of its cell after the effect of its block on all cells is removed; a window
is compared with the other windows of its launch. Both use medians, so an outlier does not mask itself. Outliers are
flagged and never dropped. docs/metrics.md states the rule and its error rate.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.families import Family
from dlscale.analysis.statistics import median
from dlscale.benchmarks.records.cell import Cell

THRESHOLD = 3.5  # of the modified z-score (Iglewicz and Hoaglin 1993)
BAND = 0.02  # of the time: a smaller deviation is no outlier, however little the others vary
NORMAL = 0.6745  # median absolute deviation of a normal distribution, in standard deviations
MIN_OTHERS = 3  # cells needed to estimate a block's effect from their launches

Values = NDArray[np.float64]
Which = NDArray[np.bool_]
B = TypeVar("B", bound=Hashable)  # names a block


def deviations(logs: Values) -> Values:
    """Deviations from the median, along the last axis."""
    return logs - median(logs, keepdims=True)


def usual_deviation(logs: Values) -> float:
    """The median absolute deviation."""
    return float(median(np.abs(deviations(logs))))


def stands_out(from_median: Values, *, usual: float | Values) -> Which:
    """Which log times are beyond the threshold, and by 2 % or more; `usual` is the median absolute deviation."""
    size = np.abs(from_median)
    out: Which = (NORMAL * size > THRESHOLD * usual) & (size > np.log1p(BAND))
    return out


def without_block_effects(cells: Sequence[dict[int, float]]) -> list[dict[int, float]]:
    """Log times of each cell's launches by block, minus the effect of the block on the other cells.

    The effect of a block is due to the machine: the median over the other cells of each one's deviation from its own
    median. A cell stays unchanged if one of its blocks has fewer than 3 other cells.
    """
    centred = [_centred_times(cell) for cell in cells]
    by_block: dict[int, list[tuple[int, float]]] = {}
    for index, cell in enumerate(centred):
        for block, value in cell.items():
            by_block.setdefault(block, []).append((index, value))
    effects: dict[tuple[int, int], float] = {}
    for block, members in by_block.items():
        if len(members) > MIN_OTHERS:
            medians = median_of_others(np.array([value for _, value in members]))
            effects |= {
                (index, block): float(median) for (index, _), median in zip(members, medians, strict=True)
            }
    return [
        {block: value - effects[index, block] for block, value in cell.items()}
        if all((index, block) in effects for block in cell)
        else cell
        for index, cell in enumerate(centred)
    ]


def median_of_others(values: Values) -> Values:
    """The median of the others for each of two or more values, sorting only once."""
    order = np.argsort(values, kind="stable")
    place = np.empty(len(values), dtype=np.intp)
    place[order] = np.arange(len(values))
    ascending, middle = values[order], (len(values) - 1) // 2

    def at(index: int) -> Values:
        """The index-th smallest of the others."""
        chosen: Values = np.where(index < place, ascending[index], ascending[index + 1])
        return chosen

    return at(middle) if len(values) % 2 == 0 else (at(middle - 1) + at(middle)) / 2


def _centred_times(cell: dict[int, float]) -> dict[int, float]:
    median = float(np.median(list(cell.values())))
    return {block: value - median for block, value in cell.items()}


MIN_LAUNCHES = 6  # fewer do not show the usual deviation
MIN_WINDOWS = 10  # of a launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A launch that stands out; `factor` is its time over that expected from its cell and its block."""

    block: tuple[str, int]  # study and block, as in `measured`
    factor: float  # 1.12: it took 12 % longer
    steady: bool  # whether its warm-up met the steady-state test


@dataclass(frozen=True, slots=True, kw_only=True)
class Outliers:
    """The outliers among a cell's good launches of one kind of evidence. Rates are samples per second."""

    cell: Cell
    family: Family
    evidence: str
    num_launches: int
    launches: tuple[Outlier, ...]
    rate: float  # of all launches and windows, as everywhere
    rate_without: float | None  # of the launches that do not stand out; None if none does
    num_windows: int
    num_windows_out: int
    # Block -> the number of windows that stand out, and the longest over its launch's median, where any does.
    windows_out: Mapping[tuple[str, int], tuple[int, float]]
    rate_without_windows: float  # of all launches, each without its windows that stand out

    @property
    def longest(self) -> float:
        """The longest of the windows that stand out, over its launch's median; 1 if none does."""
        return max([1.0, *(longest for _, longest in self.windows_out.values())])

    @property
    def blocks(self) -> frozenset[tuple[str, int]]:
        """The blocks of the launches that stand out."""
        return frozenset(outlier.block for outlier in self.launches)


def windows_out(seconds: Values) -> Which:
    """Which windows of a launch stand out, by their seconds per step, [W], or of several, [launches, W]."""
    if seconds.shape[-1] < MIN_WINDOWS:
        return np.zeros(seconds.shape, dtype=np.bool_)
    away = deviations(np.log(seconds))
    return stands_out(away, usual=median(np.abs(away), keepdims=True))


def outlying(cells: Sequence[Mapping[B, float]], *, systems: Sequence[str]) -> list[dict[B, float]]:
    """Block -> factor of the outlying launches of each cell, given as block -> seconds per step.

    A few launches may agree by chance, so a cell's deviation is never taken as less than the median over the cells of
    its system. A factor is the launch's time over that expected from its cell and its block.
    """
    numbers: dict[tuple[str, B], int] = {}
    logs = [
        {
            numbers.setdefault((system, block), len(numbers)): float(np.log(cost))
            for block, cost in cell.items()
        }
        for cell, system in zip(cells, systems, strict=True)
    ]
    rest = [np.array(list(cell.values())) for cell in without_block_effects(logs)]
    usual = [usual_deviation(values) if len(values) >= MIN_LAUNCHES else np.nan for values in rest]
    floor = {
        system: float(
            np.nanmedian(
                [deviation for deviation, whose in zip(usual, systems, strict=True) if whose == system]
            )
        )
        for system, own in zip(systems, usual, strict=True)
        if not np.isnan(own)
    }
    factors: list[dict[B, float]] = []
    for cell, values, own, system in zip(cells, rest, usual, systems, strict=True):
        if np.isnan(own):
            factors.append({})
            continue
        away = deviations(values)
        out = stands_out(away, usual=max(own, floor[system]))
        factors.append(
            {
                block: float(np.exp(value))
                for block, value, is_out in zip(cell, away, out, strict=True)
                if is_out
            }
        )
    return factors


def outliers_of(
    cell: Cell,
    family: Family,
    evidence: str,
    *,
    seconds: Mapping[tuple[str, int], Values],
    launches: Sequence[Outlier],
) -> Outliers:
    """The outliers of a cell's launches, given as block -> seconds per step of its windows, [W]."""
    blocks = {outlier.block for outlier in launches}
    medians = dict.fromkeys(seconds, 0.0)
    windows = dict.fromkeys(seconds, np.zeros(0, dtype=np.bool_))
    for length in set(map(len, seconds.values())):  # usually one
        alike = [block for block, values in seconds.items() if len(values) == length]
        times = np.stack([seconds[block] for block in alike])
        medians |= zip(alike, median(times).tolist(), strict=True)
        windows |= zip(alike, windows_out(times), strict=True)

    def rate(costs: Sequence[float]) -> float:
        return float(cell.global_batch / np.median(costs))

    out = {
        block: (int(which.sum()), float(np.max(seconds[block][which]) / medians[block]))
        for block, which in windows.items()
        if which.any()
    }
    without = [median for block, median in medians.items() if block not in blocks]
    return Outliers(
        cell=cell,
        family=family,
        evidence=evidence,
        num_launches=len(seconds),
        launches=tuple(launches),
        rate=rate(list(medians.values())),
        rate_without=rate(without) if blocks else None,
        num_windows=sum(map(len, windows.values())),
        num_windows_out=sum(num for num, _ in out.values()),
        windows_out=out,
        rate_without_windows=rate(
            [
                float(median(seconds[block][~which])) if block in out else medians[block]
                for block, which in windows.items()
            ]
        ),
    )
