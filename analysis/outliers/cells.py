"""Of every cell the launches and windows that stand out, and its rate with and without them.

A launch is held against the other launches of its cell, with what its block did to all cells taken out; a window
against the other windows of its launch. docs/contrasts.md states the rule and how often it errs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.family import Family, family_of
from dlscale.analysis.frame import world_step_seconds
from dlscale.analysis.outliers.robust import (
    Values,
    Which,
    deviations,
    stands_out,
    usual_deviation,
    without_block_effects,
)
from dlscale.benchmarks.record import Cell, Record

MIN_LAUNCHES = 6  # fewer say too little of how far apart they usually are
MIN_WINDOWS = 10  # of a launch

Block = tuple[str, int]  # study, block


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A launch that stands out, by this factor of the time that its cell's others and its block let expect."""

    block: Block
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
    def blocks(self) -> frozenset[Block]:
        """Of the launches that stand out."""
        return frozenset(one.block for one in self.launches)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    block: Block
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
    numbers: dict[tuple[str, Block], int] = {}
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
