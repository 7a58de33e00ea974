"""Outliers: the launches and windows of every cell that stand out, and its rate with and without them.

A launch is compared with the other launches of its cell after the effect of its block on all cells is removed; a window
is compared with the other windows of its launch. Both use medians, so an outlier does not mask itself. Outliers are
flagged and never dropped. docs/contrasts.md states the rule and its error rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.families import Family
from dlscale.analysis.measured import Block, CellLaunches, Measured, MeasuredCase, good_launches
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import number, percent
from dlscale.benchmarks.records.record import Cell

THRESHOLD = 3.5  # of the modified z-score (Iglewicz and Hoaglin 1993)
BAND = 0.02  # of the time: a smaller deviation is no outlier, however little the others vary
NORMAL = 0.6745  # median absolute deviation of a normal distribution, in standard deviations
MIN_OTHERS = 3  # cells needed to estimate a block's effect from their launches

Values = NDArray[np.float64]
Which = NDArray[np.bool_]


def deviations(logs: Values) -> Values:
    """Deviations from the median, along the last axis."""
    return logs - np.median(logs, axis=-1, keepdims=True)


def usual_deviation(logs: Values) -> float:
    """The median absolute deviation."""
    return float(np.median(np.abs(deviations(logs))))


def stands_out(from_median: Values, *, usual: float) -> Which:
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

    block: Block
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
    longest: float  # of the windows that stand out, over its launch's median; 1 if none does
    rate_without_windows: float  # of all launches, each without its windows that stand out

    @property
    def blocks(self) -> frozenset[Block]:
        """The blocks of the launches that stand out."""
        return frozenset(outlier.block for outlier in self.launches)


def outliers(measured: Iterable[CellLaunches]) -> list[Outliers]:
    """The outliers of each cell and kind of evidence."""
    cells = good_launches(measured)
    systems = [launches.family.system for launches in cells]
    launches_out = _launches_out([launches.cases for launches in cells], systems=systems)
    return [_outliers(launches, out) for launches, out in zip(cells, launches_out, strict=True)]


def windows_out(seconds: Values) -> Which:
    """Which windows of a launch stand out, by their seconds per step, [W]."""
    if len(seconds) < MIN_WINDOWS:
        return np.zeros(len(seconds), dtype=np.bool_)
    logs = np.log(seconds)
    return stands_out(deviations(logs), usual=usual_deviation(logs))


def _launches_out(
    cells: Sequence[Sequence[MeasuredCase]], *, systems: Sequence[str]
) -> list[tuple[Outlier, ...]]:
    """The outlying launches of each cell.

    A few launches may agree by chance, so a cell's deviation is never taken as less than the median over the cells.
    """
    numbers: dict[tuple[str, Block], int] = {}
    logs = [
        {numbers.setdefault((system, case.block), len(numbers)): float(np.log(case.world)) for case in mine}
        for mine, system in zip(cells, systems, strict=True)
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
    out_by_cell: list[tuple[Outlier, ...]] = []
    for mine, values, own, system in zip(cells, rest, usual, systems, strict=True):
        if np.isnan(own):
            out_by_cell.append(())
            continue
        away = deviations(values)
        out = stands_out(away, usual=max(own, floor[system]))
        out_by_cell.append(
            tuple(
                Outlier(block=case.block, factor=float(np.exp(value)), steady=case.steady)
                for case, value, is_out in zip(mine, away, out, strict=True)
                if is_out
            )
        )
    return out_by_cell


def _outliers(launches: CellLaunches, out: tuple[Outlier, ...]) -> Outliers:
    cell, cases = launches.cell, launches.cases
    blocks = {outlier.block for outlier in out}
    windows = [windows_out(case.seconds) for case in cases]

    def rate(costs: Sequence[float]) -> float:
        return float(cell.global_batch / np.median(costs))

    longest = [
        float(np.max(case.seconds[which]) / case.world)
        for case, which in zip(cases, windows, strict=True)
        if which.any()
    ]
    typical_without = [
        float(np.median(case.seconds[~which])) for case, which in zip(cases, windows, strict=True)
    ]
    return Outliers(
        cell=cell,
        family=launches.family,
        evidence=launches.evidence,
        num_launches=len(cases),
        launches=out,
        rate=rate([case.world for case in cases]),
        rate_without=rate([case.world for case in cases if case.block not in blocks]) if out else None,
        num_windows=sum(map(len, windows)),
        num_windows_out=int(sum(which.sum() for which in windows)),
        longest=max([1.0, *longest]),
        rate_without_windows=rate(typical_without),
    )


StandingOut = Mapping[tuple[Family, str, str], Outliers]  # by family, cell and kind of evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """A study's launches without outliers. `families` are those that have any."""

    out: StandingOut
    launches: tuple[CellLaunches, ...]
    families: frozenset[Family]


def trimmed(measured: Sequence[CellLaunches], flagged: Iterable[Outliers]) -> Trimmed:
    """The launches of all cells without outliers."""
    out = {(entry.family, entry.cell.id, entry.evidence): entry for entry in flagged}
    return Trimmed(
        out=out,
        launches=tuple(trim(launches, out) for launches in measured),
        families=frozenset(entry.family for entry in out.values() if entry.launches),
    )


def trim(launches: CellLaunches, out: StandingOut) -> CellLaunches:
    """The launches without those that stand out; the same object where none does."""
    blocks = {
        kind: cell_outliers.blocks
        for kind in launches.kinds
        if (cell_outliers := out.get((launches.family, launches.id, kind))) and cell_outliers.launches
    }
    if not blocks:
        return launches
    kept = (case for case in launches.cases if case.block not in blocks.get(case.record.evidence, ()))
    return replace(launches, cases=tuple(kept))


def outlier_columns(flagged: Outliers | None) -> dict[str, Any]:
    """Columns on outliers, all None without a good launch. Rates here exclude outliers; all other columns include them.

    `launches_out` gives study, block and time factor of each: `weak-scaling-1a2b 3: 1.120`.
    """
    if flagged is None:
        return dict.fromkeys(_OUTLIER_COLUMNS)
    launches = "; ".join(
        f"{study} {block}: {outlier.factor:.3f}"
        for outlier in flagged.launches
        for study, block in [outlier.block]
    )
    values = (
        len(flagged.launches),
        launches,
        flagged.rate_without,
        flagged.num_windows,
        flagged.num_windows_out,
        flagged.longest,
        flagged.rate_without_windows,
    )
    return dict(zip(_OUTLIER_COLUMNS, values, strict=True))


_OUTLIER_COLUMNS = (
    "num_launches_out",
    "launches_out",
    "samples_per_second_without_launches_out",
    "num_windows",
    "num_windows_out",
    "longest_window_out",
    "samples_per_second_without_windows_out",
)

MATTERS = 0.01  # of the rate


def outlier_notes(flagged: Outliers) -> Iterator[str]:
    """Notes on outlying launches and windows; none for windows that do not change the rate by 1 %."""
    if flagged.launches and flagged.rate_without:
        num = len(flagged.launches)
        which, those = (f"{num} launches", "them") if num > 1 else ("1 launch", "it")
        yield (
            f"{which} of {flagged.num_launches} {'are' if num > 1 else 'is'} {_how_far(flagged.launches)} "
            "than the others; "
            f"without {those} {number(flagged.rate_without)} samples/s"
        )
    if abs(flagged.rate_without_windows / flagged.rate - 1) >= MATTERS:
        yield (
            f"{flagged.num_windows_out} of {flagged.num_windows} windows stand out, "
            f"by up to {flagged.longest:.1f} times "
            f"the launch's median; without them {number(flagged.rate_without_windows)} samples/s"
        )


def efficiency_notes(efficiency: Interval | None, without: Interval | None) -> Iterator[str]:
    """A note with efficiency (a) without outlying launches, its own and the base case's; none if there are none."""
    if efficiency and without and without.n < efficiency.n:
        yield f"without outlying launches, its own and the base case's, efficiency (a) is {percent(without)}"


def _how_far(launches: tuple[Outlier, ...]) -> str:
    """`12 % slower (block 3)`, `11 % to 14 % slower (blocks 2, 3)`, or both sides."""
    sides = []
    for side in ("slower", "faster"):
        here = [outlier for outlier in launches if (outlier.factor > 1) == (side == "slower")]
        if here:
            sizes = sorted({f"{100 * abs(outlier.factor - 1):.0f}" for outlier in here}, key=int)
            ends = dict.fromkeys((sizes[0], sizes[-1]))
            sides.append(f"{' to '.join(ends)} % {side} ({_blocks(here)})")
    return " and ".join(sides)


def _blocks(launches: list[Outlier]) -> str:
    names = [f"{outlier.block[1]}{'' if outlier.steady else ', never steady'}" for outlier in launches]
    return f"block{'s' * (len(names) > 1)} {', '.join(names)}"


def study_outliers(study: Measured) -> list[Outliers]:
    """Those of all cells of a study."""
    return outliers(study.launches)
