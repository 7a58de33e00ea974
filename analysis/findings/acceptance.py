"""Acceptance: a new study held against baselines, cell by cell, and which cells would tell most in little time."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlscale.analysis.between_studies import Shift, newest
from dlscale.analysis.declare import Sentence
from dlscale.analysis.findings.history import HistoryRow, Neighbours, cell_text, change_of, power, rows_of
from dlscale.analysis.findings.past_studies import (
    EFFICIENCY,
    Series,
    code_difference,
    fact_changes,
    groups_of,
    key_differences,
)
from dlscale.analysis.text import plural, share_text
from dlscale.benchmarks.records.expectations import Expected, PastStudy


def expected_of(
    studies: Sequence[PastStudy],
) -> tuple[list[PastStudy], dict[str, dict[str, Expected]], list[str]]:
    """Baselines of the cells that all of them have, what is expected of those, and the names of the other cells."""
    common = set.intersection(*(set(_series(study)) for study in studies))
    lacking = {cell_id for study in studies for cell_id in study.cells} - {cell_id for _, cell_id in common}
    baselines = [_only(study, common) for study in studies]
    expected: dict[str, dict[str, Expected]] = {}
    for (metric, cell_id), shift in limits_of(baselines).items():
        values = [study.numbers[metric][cell_id].value for study in baselines]
        expected.setdefault(metric, {})[cell_id] = Expected(
            median=float(np.median(values)), spread=math.expm1(shift.spread)
        )
    cells = {cell_id: past for study in studies for cell_id, past in study.cells.items()}
    return baselines, expected, sorted(cell_text(cells[cell_id].cell) for cell_id in lacking)


def _series(study: PastStudy) -> Iterator[Series]:
    return ((metric, cell_id) for metric, own in study.numbers.items() for cell_id in own)


def _only(study: PastStudy, series: Collection[Series]) -> PastStudy:
    """The study with those of its numbers."""
    numbers = {
        metric: {cell_id: one for cell_id, one in own.items() if (metric, cell_id) in series}
        for metric, own in study.numbers.items()
    }
    kept = {cell_id for _, cell_id in series}
    cells = {cell_id: past for cell_id, past in study.cells.items() if cell_id in kept}
    return study.model_copy(update={"numbers": numbers, "cells": cells})


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A study held against baselines: a row per metric and cell that both have, worse ones first.

    `forbids` is what must agree and does not: then there are no rows. `missing` are expected cells without a number,
    `changed` what was recorded otherwise than in the last baseline.
    """

    baselines: tuple[PastStudy, ...]
    rows: tuple[HistoryRow, ...] = ()
    forbids: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    changed: Neighbours


def accept(
    baselines: Sequence[PastStudy], study: PastStudy, *, wanted: Sequence[str] | None = None
) -> Acceptance:
    """The study held against the baselines; of the cells `wanted`, default all, those without a number are missing."""
    last = baselines[-1]
    held = Acceptance(
        baselines=tuple(baselines),
        changed=Neighbours(study=study, changed=tuple(fact_changes(last, study))),
        forbids=(*key_differences(last.key, study.key), *code_difference(last, study)),
    )
    if held.forbids:
        return held
    every = {cell_id: past for cell_id, past in last.cells.items() if wanted is None or cell_id in wanted}
    measured = {cell_id for _, cell_id in _series(study)}
    studies = [*baselines, _only(study, set(_series(last)))]
    groups, names = groups_of(studies)
    shifts = {(shift.group, shift.cell): (shift,) for shift in newest(groups)}
    rows = [row for row in rows_of(studies, names, shifts) if row.shift]
    return replace(
        held,
        rows=tuple(rows),
        missing=tuple(cell_text(past.cell) for cell_id, past in every.items() if cell_id not in measured),
    )


def sentences(held: Acceptance) -> Iterator[Sentence]:
    """The answer, what is otherwise than before, and the smallest loss that would have been seen."""
    first, last = held.baselines[0].begun[:10], held.baselines[-1].begun[:10]
    head = f"Against {plural(len(held.baselines), 'baseline')} of {first} to {last}"
    if held.forbids:
        yield Sentence(text=f"{head}: not comparable: {'; '.join(held.forbids)}.", strong=True)
        return
    changed = [row for row in held.rows if row.changed]
    cells = {row.cell.id for row in held.rows}
    usual = len(cells - {row.cell.id for row in changed})
    yield Sentence(text=f"{head}: {usual} of {plural(len(cells), 'cell')} as expected.", strong=True)
    for row in changed:
        size = share_text(change_of(row.found[-1]), sign="+")
        yield Sentence(text=f"{row.verdict}: {row.where}, {size}.", strong=True)
    if held.missing:
        yield Sentence(text=f"Not measured: {', '.join(held.missing)}.", strong=True)
    yield Sentence(
        text=f"Since the last baseline: {held.changed.text or 'nothing that is recorded changed'}."
    )
    yield from power(held.rows, num_baselines=len(held.baselines))


def limits_of(
    baselines: Sequence[PastStudy], *, launches: int | None = None
) -> Mapping[tuple[str, str], Shift]:
    """What a further study would be told from, by metric and cell, if it had no change and that many launches."""
    groups, names = groups_of(baselines)
    following = [
        replace(
            group,
            values=np.vstack([group.values, np.nanmean(group.values, axis=0)]),
            launches=np.vstack(
                [group.launches, np.full(group.values.shape[1], launches or group.launches[-1])]
            ),
        )
        for group in groups
    ]
    return {names[shift.group][shift.cell]: shift for shift in newest(following)}


def telling_order(baselines: Sequence[PastStudy], *, launches: int) -> list[str]:
    """The cells by what they tell: the base cases, then each backend's best, then the rest.

    Best is the cell with the smallest change that would be shown, of any metric. Efficiencies need the base case.
    """
    last, limits = baselines[-1], limits_of(baselines, launches=launches)
    seen: dict[str, float] = {}
    for (_, cell_id), shift in limits.items():
        seen[cell_id] = min(shift.seen, seen.get(cell_id, math.inf))
    order = sorted(seen, key=lambda cell_id: (seen[cell_id], cell_id))
    bases = [i for i in order if last.cells[i].cell.backend == "none" and not last.number(EFFICIENCY, i)]
    first: dict[tuple[str, str, str], str] = {}
    for cell_id in sorted(order, key=lambda i: (-last.cells[i].cell.num_ranks, seen[i])):
        cell = last.cells[cell_id].cell
        first.setdefault((cell.workload, cell.framework, cell.method), cell_id)
    best = sorted(first.values(), key=lambda cell_id: seen[cell_id])
    return list(dict.fromkeys([*bases, *best, *order]))
