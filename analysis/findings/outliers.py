"""Outliers: the launches and windows of every cell that stand out, and its rate with and without them.

A launch is held against the other launches of its cell, with what its block did to all cells taken out; a window
against the other windows of its launch, by medians, so that what stands out does not hide itself. Outliers are
flagged and never dropped. docs/contrasts.md states the rule and how often it errs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.families import Family, family_of
from dlscale.analysis.records import CellRows, world_step_seconds
from dlscale.analysis.render.text import number, percent
from dlscale.analysis.statistics import Interval
from dlscale.benchmarks.records.record import Cell, Record

THRESHOLD = 3.5  # of the modified z-score (Iglewicz and Hoaglin 1993)
BAND = 0.02  # of the time: what is nearer to the others stands out to no reader, however quiet they are
NORMAL = 0.6745  # median absolute deviation of a normal distribution, in standard deviations
MIN_OTHERS = 3  # cells whose launches of a block say together how fast the machine was then

Values = NDArray[np.float64]
Which = NDArray[np.bool_]


def deviations(logs: Values) -> Values:
    """From the median, along the last axis."""
    return logs - np.median(logs, axis=-1, keepdims=True)


def usual_deviation(logs: Values) -> float:
    """The median absolute deviation."""
    return float(np.median(np.abs(deviations(logs))))


def stands_out(from_median: Values, *, usual: float) -> Which:
    """Which log times are beyond the threshold, and by 2 % or more; `usual` is the median absolute deviation."""
    size = np.abs(from_median)
    found: Which = (NORMAL * size > THRESHOLD * usual) & (size > np.log1p(BAND))
    return found


def without_block_effects(cells: Sequence[dict[int, float]]) -> list[dict[int, float]]:
    """Log times of each cell's launches by block, less what the other cells say of the block.

    What all launches of a block have in common is the machine's: the median, over the other cells, of how far each is
    from its own median. A cell is left as it is if one of its blocks has fewer than 3 others.
    """
    centred = [_centred_times(cell) for cell in cells]
    by_block: dict[int, list[tuple[int, float]]] = {}
    for index, cell in enumerate(centred):
        for block, value in cell.items():
            by_block.setdefault(block, []).append((index, value))
    effects: dict[tuple[int, int], float] = {}
    for block, members in by_block.items():
        if len(members) > MIN_OTHERS:
            others = median_of_others(np.array([value for _, value in members]))
            effects |= {(index, block): float(one) for (index, _), one in zip(members, others, strict=True)}
    return [
        {block: value - effects[index, block] for block, value in cell.items()}
        if all((index, block) in effects for block in cell)
        else cell
        for index, cell in enumerate(centred)
    ]


def median_of_others(values: Values) -> Values:
    """For each of two values or more the median of the others, without sorting again for each."""
    order = np.argsort(values, kind="stable")
    place = np.empty(len(values), dtype=np.intp)
    place[order] = np.arange(len(values))
    ascending, middle = values[order], (len(values) - 1) // 2

    def at(index: int) -> Values:
        """The index-th smallest of the others."""
        found: Values = np.where(index < place, ascending[index], ascending[index + 1])
        return found

    return at(middle) if len(values) % 2 == 0 else (at(middle - 1) + at(middle)) / 2


def _centred_times(cell: dict[int, float]) -> dict[int, float]:
    median = float(np.median(list(cell.values())))
    return {block: value - median for block, value in cell.items()}


MIN_LAUNCHES = 6  # fewer say too little of how far apart they usually are
MIN_WINDOWS = 10  # of a launch

OutlierBlock = tuple[str, int]  # study, block


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A launch that stands out, by this factor of the time that its cell's others and its block let expect."""

    block: OutlierBlock
    factor: float  # 1.12: it took 12 % longer
    steady: bool  # whether its warm-up met the steady-state test


@dataclass(frozen=True, slots=True, kw_only=True)
class Outliers:
    """Of a cell's launches that gave a number, of one kind of evidence. Rates are samples per second."""

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
    def blocks(self) -> frozenset[OutlierBlock]:
        """Of the launches that stand out."""
        return frozenset(one.block for one in self.launches)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    block: OutlierBlock
    steady: bool
    seconds: Values  # per step, of each steady window
    out: Which  # of the windows stand out

    @property
    def typical(self) -> float:
        return float(np.median(self.seconds))

    @property
    def typical_without(self) -> float:
        return float(np.median(self.seconds[~self.out]))


def outliers(good: Sequence[Record]) -> list[Outliers]:
    """One for each cell and kind of evidence of good records, at most one of each case (`latest_good`)."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in good:
        groups.setdefault((record.system, record.case.cell.id, record.evidence), []).append(record)
    keys = sorted(groups)
    launches = [[_launch(record) for record in groups[key]] for key in keys]
    found = _launches_out(launches, systems=[key[0] for key in keys])
    return [
        _outliers(groups[key][0], mine, out) for key, mine, out in zip(keys, launches, found, strict=True)
    ]


def _launch(record: Record) -> _Launch:
    seconds = world_step_seconds(record)
    out: Which = np.zeros(len(seconds), dtype=np.bool_)
    if len(seconds) >= MIN_WINDOWS:
        logs = np.log(seconds)
        out = stands_out(deviations(logs), usual=usual_deviation(logs))
    return _Launch(
        block=(record.study, record.case.block),
        steady=record.steady is not False,
        seconds=seconds,
        out=out,
    )


def _launches_out(cells: Sequence[Sequence[_Launch]], *, systems: Sequence[str]) -> list[tuple[Outlier, ...]]:
    """The quiet of a few launches may be chance: a cell's own deviation counts as that of the usual cell at least."""
    numbers: dict[tuple[str, OutlierBlock], int] = {}
    logs = [
        {numbers.setdefault((system, one.block), len(numbers)): float(np.log(one.typical)) for one in mine}
        for mine, system in zip(cells, systems, strict=True)
    ]
    rest = [np.array(list(one.values())) for one in without_block_effects(logs)]
    usual = [usual_deviation(one) if len(one) >= MIN_LAUNCHES else np.nan for one in rest]
    floor = {
        system: float(
            np.nanmedian([one for one, whose in zip(usual, systems, strict=True) if whose == system])
        )
        for system, one in zip(systems, usual, strict=True)
        if not np.isnan(one)
    }
    found: list[tuple[Outlier, ...]] = []
    for mine, values, own, system in zip(cells, rest, usual, systems, strict=True):
        if np.isnan(own):
            found.append(())
            continue
        away = deviations(values)
        out = stands_out(away, usual=max(own, floor[system]))
        found.append(
            tuple(
                Outlier(block=one.block, factor=float(np.exp(value)), steady=one.steady)
                for one, value, is_out in zip(mine, away, out, strict=True)
                if is_out
            )
        )
    return found


def _outliers(record: Record, mine: Sequence[_Launch], out: tuple[Outlier, ...]) -> Outliers:
    cell = record.case.cell
    blocks = {one.block for one in out}

    def rate(costs: Sequence[float]) -> float:
        return float(cell.global_batch / np.median(costs))

    longest = [float(np.max(one.seconds[one.out]) / one.typical) for one in mine if one.out.any()]
    return Outliers(
        cell=cell,
        family=family_of(cell, system=record.system),
        evidence=record.evidence,
        num_launches=len(mine),
        launches=out,
        rate=rate([one.typical for one in mine]),
        rate_without=rate([one.typical for one in mine if one.block not in blocks]) if out else None,
        num_windows=sum(len(one.seconds) for one in mine),
        num_windows_out=int(sum(one.out.sum() for one in mine)),
        longest=max([1.0, *longest]),
        rate_without_windows=rate([one.typical_without for one in mine]),
    )


StandingOut = Mapping[tuple[Family, str, str], Outliers]  # by family, cell and kind of evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """A study's launches without those that stand out. `families` are those in which any does."""

    out: StandingOut
    launches: tuple[CellRows, ...]
    families: frozenset[Family]


def trimmed(measured: Sequence[CellRows], found: Iterable[Outliers]) -> Trimmed:
    """Of all cells."""
    out = {(one.family, one.cell.id, one.evidence): one for one in found}
    return Trimmed(
        out=out,
        launches=tuple(trim(launches, out) for launches in measured),
        families=frozenset(one.family for one in out.values() if one.launches),
    )


def trim(launches: CellRows, out: StandingOut) -> CellRows:
    """The launches without those that stand out; the same object where none does."""
    cases = launches.cases
    names = {
        (one.evidence, *outlier.block)
        for kind in set(cases["evidence"])
        if (one := out.get((launches.family, launches.cell.id, str(kind))))
        for outlier in one.launches
    }
    if not names:
        return launches
    rows = zip(cases["evidence"], cases["study"], cases["block"], strict=True)
    kept = np.array([row not in names for row in rows])
    return CellRows(cell=launches.cell, family=launches.family, cases=cases[kept])


def outlier_columns(found: Outliers | None) -> dict[str, Any]:
    """All None without launches that gave a number. Rates are those without what stands out, which counts elsewhere.

    `launches_out` names study, block and the factor of the time: `weak-scaling-1a2b 3: 1.120`.
    """
    if found is None:
        return dict.fromkeys(_OUTLIER_COLUMNS)
    launches = "; ".join(
        f"{study} {block}: {one.factor:.3f}" for one in found.launches for study, block in [one.block]
    )
    values = (
        len(found.launches),
        launches,
        found.rate_without,
        found.num_windows,
        found.num_windows_out,
        found.longest,
        found.rate_without_windows,
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

MANY = 0.05  # of the windows
MATTERS = 0.01  # of the rate


def outlier_notes(found: Outliers) -> Iterator[str]:
    """None where nothing stands out. A few windows that change nothing are in the rows, and no note."""
    if found.launches and found.rate_without:
        num = len(found.launches)
        which, those = (f"{num} launches", "them") if num > 1 else ("1 launch", "it")
        yield (
            f"{which} of {found.num_launches} {'are' if num > 1 else 'is'} {_how_far(found.launches)} than the others; "
            f"without {those} {number(found.rate_without)} samples/s"
        )
    share = found.num_windows_out / max(1, found.num_windows)
    change = abs(found.rate_without_windows / found.rate - 1)
    if share >= MANY or change >= MATTERS:
        yield (
            f"{found.num_windows_out} of {found.num_windows} windows stand out, by up to {found.longest:.1f} times the "
            f"launch's median; without them {number(found.rate_without_windows)} samples/s"
        )


def efficiency_notes(told: Interval | None, without: Interval | None) -> Iterator[str]:
    """What an efficiency (a) is without outlying launches, its own and the base case's; none if there are none."""
    if told and without and without.n < told.n:
        yield f"without outlying launches, its own and the base case's, efficiency (a) is {percent(without)}"


def _how_far(launches: tuple[Outlier, ...]) -> str:
    """`12 % slower (block 3)`, `11 % to 14 % slower (blocks 2, 3)`, or both sides."""
    sides = []
    for side in ("slower", "faster"):
        here = [one for one in launches if (one.factor > 1) == (side == "slower")]
        if here:
            sizes = sorted({f"{100 * abs(one.factor - 1):.0f}" for one in here}, key=int)
            ends = dict.fromkeys((sizes[0], sizes[-1]))
            sides.append(f"{' to '.join(ends)} % {side} ({_blocks(here)})")
    return " and ".join(sides)


def _blocks(launches: list[Outlier]) -> str:
    names = [f"{one.block[1]}{'' if one.steady else ', never steady'}" for one in launches]
    return f"block{'s' * (len(names) > 1)} {', '.join(names)}"
